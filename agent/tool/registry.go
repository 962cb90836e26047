package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agent/model"
	"rouse/internal/domain"
)

// Registry is the set of tools of one run. A list takes a quarter of the memory of a map: each run
// holds several registries.
type Registry struct {
	tools    []Tool   // sorted by their names
	names    []string // of each of them
	unlisted *Unlisted
	brief    bool // models are told of the tools in brief
}

// NewRegistry refuses two tools with the same name, and a Tool that Define did not make.
func NewRegistry(tools ...Tool) (*Registry, error) {
	if slices.ContainsFunc(tools, func(t Tool) bool { return t.spec == nil }) {
		return nil, errors.New("a tool without a name was defined")
	}

	r := &Registry{tools: slices.Clone(tools), names: make([]string, len(tools))}
	slices.SortFunc(r.tools, func(a, b Tool) int { return strings.Compare(a.Name(), b.Name()) })
	for i, t := range r.tools {
		if i > 0 && t.Name() == r.names[i-1] {
			return nil, fmt.Errorf("the tool %s is defined twice", t.Name())
		}
		r.names[i] = t.Name()
	}
	return r, nil
}

// With returns the registry with one more tool.
func (r *Registry) With(t Tool) (*Registry, error) {
	out, err := NewRegistry(append(slices.Clip(r.tools), t)...)
	if err != nil {
		return nil, err
	}
	out.unlisted, out.brief = r.unlisted, r.brief
	return out, nil
}

// WithUnlisted returns the registry with some tools left out of the list that models get. They can
// be called by name, and join the end of the list once they are loaded (OSA-20).
func (r *Registry) WithUnlisted(u *Unlisted) *Registry {
	out := *r
	out.unlisted = u
	return &out
}

// Briefly returns the registry with its tools told in brief, for a model with a small context.
func (r *Registry) Briefly() *Registry {
	out := *r
	out.brief = true
	return &out
}

// IsBrief reports whether models are told of the tools in brief.
func (r *Registry) IsBrief() bool { return r.brief }

// Names lists the tools, sorted. It must not be changed.
func (r *Registry) Names() []string { return r.names }

// Lookup finds a tool. If it does not exist, the Tool has the zero Spec.
func (r *Registry) Lookup(name string) (Tool, bool) {
	i, ok := slices.BinarySearch(r.names, name)
	if !ok {
		return Tool{spec: &Spec{}}, false
	}
	return r.tools[i], true
}

// IsAllowed reports whether a glob of allow matches a tool (without any, all are allowed) and no glob of
// deny does. A malformed glob allows nothing and denies everything.
func IsAllowed(allow, deny []string, name string) bool {
	return (len(allow) == 0 || matchesAny(allow, name, false)) && !matchesAny(deny, name, true)
}

// Filter keeps the tools that allow and deny permit.
func (r *Registry) Filter(allow, deny []string) *Registry {
	out := &Registry{unlisted: r.unlisted, brief: r.brief}
	for i, name := range r.names {
		if IsAllowed(allow, deny, name) {
			out.tools, out.names = append(out.tools, r.tools[i]), append(out.names, name)
		}
	}
	return out
}

func matchesAny(globs []string, name string, broken bool) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, name)
		if err != nil {
			return broken
		}
		return ok
	})
}

// ModelTools lists the tools for a model, in a fixed order, with loaded tools at the end.
func (r *Registry) ModelTools() []model.Tool {
	out := make([]model.Tool, 0, len(r.names))
	add := func(t Tool) {
		if r.brief {
			out = append(out, t.BriefForModel())
		} else {
			out = append(out, model.Tool{Name: t.Name(), Description: strings.TrimSpace(t.Description()), Schema: t.told})
		}
	}
	for _, t := range r.tools {
		if !r.unlisted.has(t.Name()) {
			add(t)
		}
	}
	for _, name := range r.unlisted.Loaded() {
		if t, ok := r.Lookup(name); ok {
			add(t)
		}
	}
	return out
}

// Call checks the arguments and runs a tool. Failures that the caller can handle, and faults of the
// file system (domain.IsFileFault), are envelopes. An error means that the host is broken.
func (r *Registry) Call(ctx context.Context, in Invocation, name string, args json.RawMessage) (Envelope, error) {
	t, ok := r.Lookup(name)
	if !ok {
		return r.unknown(name), nil
	}

	var e Envelope
	fitted, err := t.validate(args)
	if err == nil {
		e, err = t.runWithTimeout(ctx, in, fitted)
	}
	if domain.IsFileFault(err) {
		e, err = FaultEnvelope(err), nil
		if effect := t.EffectOf(fitted); effect == domain.EffectWrite || effect == domain.EffectExternal {
			e.Message += "; it is unknown whether the call took effect: check before you repeat it"
			e.Uncertain = true
		}
	}

	e, err = Answered(e, err)
	e.Tool = name
	// The model has not seen the schema of an unlisted tool. From the next request on the tool is
	// listed.
	if e.Kind == KindInvalidArgs && r.unlisted.load(name) {
		e.Message += fmt.Sprintf("; the arguments of %s are %s", name, t.told)
	}
	return e, err
}

// FaultEnvelope returns the result of a call that a fault of the file system prevented.
func FaultEnvelope(err error) Envelope {
	return Failure(KindExecutionError, "the file system refused it: %v", err)
}

func (r *Registry) unknown(name string) Envelope {
	near := hint(name, r.names)
	if near == "" {
		near = "."
	}

	all := "There are no tools in this run."
	if len(r.names) > 0 {
		all = "The tools are " + strings.Join(r.names, ", ") + "."
	}
	return Failure(KindToolNotFound, "there is no tool %q here%s %s Others need a grant of the agent's, or are left out by its tools: allow or deny.", name, near, all)
}

type outcome struct {
	envelope Envelope
	err      error
}

// runWithTimeout runs the function, and stops waiting for it when its time is over.
func (t Tool) runWithTimeout(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error) {
	// Such a tool must be waited for: an answer before it has ended would be wrong.
	if t.spec.Timeout < 0 {
		o := t.runRecovered(ctx, in, args)
		return o.envelope, o.err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, t.spec.Timeout, timeoutError{t.spec.Timeout})
	defer cancel()

	// Buffered: a tool that ends after nobody waits any more must not block forever.
	done := make(chan outcome, 1)
	go func() { done <- t.runRecovered(ctx, in, args) }()
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		// A tool that watches its context ends now, and knows best what to say. Any other is left behind.
		select {
		case o = <-done:
		case <-time.After(time.Second):
			o.err = context.Cause(ctx)
		}
	}

	// A success that came together with the timeout stays a success.
	var late timeoutError
	if errors.As(context.Cause(ctx), &late) && (o.err != nil || !o.envelope.OK) {
		if t.spec.Effect == domain.EffectWrite || t.spec.Effect == domain.EffectExternal {
			return Failure(KindTimeout, "the call did not end within %s; whether it took effect is unknown", late.after), nil
		}
		return Failure(KindTimeout, "the call did not end within %s", late.after), nil
	}

	// A cancelled run makes tools fail with errors that do not mean a broken host.
	if o.err != nil && ctx.Err() != nil {
		return Failure(KindExecutionError, "cancelled: %v", context.Cause(ctx)), nil
	}

	return o.envelope, o.err
}

// runRecovered runs the function, and turns a panic into a failed call.
func (t Tool) runRecovered(ctx context.Context, in Invocation, args json.RawMessage) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = outcome{Failure(KindExecutionError, "the tool failed by a defect of rouse: %v", p), nil}
		}
	}()
	e, err := t.run(ctx, in, args)
	return outcome{e, err}
}

type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string { return "no end within " + e.after.String() }

// Unlisted is the set of tools of a run that models are not told of at first. Registries made from
// one another share it. A nil Unlisted is empty.
type Unlisted struct {
	names []string // sorted

	mu     sync.Mutex
	loaded []string // those of names that are listed by now, in the order in which they were loaded
}

// NewUnlisted makes a set of names. Of those, loaded were loaded by an earlier attempt.
func NewUnlisted(names []string, loaded ...string) *Unlisted {
	u := &Unlisted{names: slices.Sorted(slices.Values(names))}
	for _, name := range loaded {
		u.load(name)
	}
	return u
}

// Names lists the tools, sorted. The caller must not change it.
func (u *Unlisted) Names() []string {
	if u == nil {
		return nil
	}
	return u.names
}

// Loaded lists the loaded tools in the order in which they were loaded. The caller must not change it.
func (u *Unlisted) Loaded() []string {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clip(u.loaded)
}

// Load lists a tool from the next request on. Tools that are listed anyway are ignored.
func (u *Unlisted) Load(name string) { u.load(name) }

// load reports whether the tool was not listed before.
func (u *Unlisted) load(name string) bool {
	if !u.has(name) {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.Contains(u.loaded, name) {
		return false
	}
	u.loaded = append(u.loaded, name)
	return true
}

// has reports whether a tool is in the set, loaded or not.
func (u *Unlisted) has(name string) bool {
	if u == nil {
		return false
	}
	_, ok := slices.BinarySearch(u.names, name)
	return ok
}

// sentenceEnd matches the end of a sentence, but not a full stop within a word.
var sentenceEnd = regexp.MustCompile(`[.:]\s`)

// BriefForModel returns the tool for a model with a small context: one sentence, and a schema that
// describes only the required arguments. Calls are checked by the whole schema.
func (t Tool) BriefForModel() model.Tool {
	return model.Tool{Name: t.Name(), Description: cmp.Or(t.spec.Brief, t.spec.FirstSentence()), Schema: briefSchema(t.told)}
}

// FirstSentence is the beginning of the description, which says what the tool is for.
func (s Spec) FirstSentence() string {
	text := strings.Join(strings.Fields(s.Description), " ") + " "
	if end := sentenceEnd.FindStringIndex(text); end != nil {
		text = text[:end[0]] + "."
	}
	return strings.TrimSpace(text)
}

// briefSchema leaves out the descriptions of optional arguments.
func briefSchema(raw json.RawMessage) json.RawMessage {
	var s map[string]any
	if json.Unmarshal(raw, &s) != nil {
		return raw
	}

	required, _ := s["required"].([]any)
	properties, _ := s["properties"].(map[string]any)
	for name, p := range properties {
		dropDescriptions(p, slices.Contains(required, any(name)))
	}

	out, err := json.Marshal(s)
	if err != nil {
		return raw
	}
	return out
}

// dropDescriptions leaves the descriptions out of a schema and of all within it; keep spares its own.
func dropDescriptions(schema any, keep bool) {
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}

	if !keep {
		delete(s, "description")
	}

	// What is called description within properties is an argument of that name.
	properties, _ := s["properties"].(map[string]any)
	for _, p := range properties {
		dropDescriptions(p, false)
	}
	dropDescriptions(s["items"], false)
}
