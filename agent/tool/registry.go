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

// Registry is the set of tools of one run. Each run has several registries, so they use sorted
// slices, which need less memory than maps.
type Registry struct {
	tools    []Tool   // sorted by name
	names    []string // names of tools, in the same order
	unlisted *Unlisted
	brief    bool // models get shortened descriptions
}

// NewRegistry returns a registry of tools. It returns an error if two tools have the same name or a
// tool was not created by Define or DefineBySchema.
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

// With returns a copy of the registry with one more tool.
func (r *Registry) With(t Tool) (*Registry, error) {
	out, err := NewRegistry(append(slices.Clip(r.tools), t)...)
	if err != nil {
		return nil, err
	}
	out.unlisted, out.brief = r.unlisted, r.brief
	return out, nil
}

// WithUnlisted returns a copy of the registry that omits some tools from the list for models. These
// tools can be called by name, and are appended to the list once they are loaded.
func (r *Registry) WithUnlisted(u *Unlisted) *Registry {
	out := *r
	out.unlisted = u
	return &out
}

// Briefly returns a copy of the registry with shortened descriptions, for a model with a small
// context.
func (r *Registry) Briefly() *Registry {
	out := *r
	out.brief = true
	return &out
}

// IsBrief reports whether models get shortened descriptions of the tools.
func (r *Registry) IsBrief() bool { return r.brief }

// Names returns the sorted names of the tools. The caller must not change the slice.
func (r *Registry) Names() []string { return r.names }

// Lookup returns a tool by name. If the tool does not exist, it returns a Tool with the zero Spec.
func (r *Registry) Lookup(name string) (Tool, bool) {
	i, ok := slices.BinarySearch(r.names, name)
	if !ok {
		return Tool{spec: &Spec{}}, false
	}
	return r.tools[i], true
}

// IsAllowed reports whether a glob in allow matches a tool and no glob in deny does. An empty allow
// list allows all tools. A malformed glob in allow matches no tool, and in deny every tool.
func IsAllowed(allow, deny []string, name string) bool {
	return (len(allow) == 0 || matchesAny(allow, name, false)) && !matchesAny(deny, name, true)
}

// Filter returns a registry of the tools for which IsAllowed returns true.
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

// ModelTools returns the list of tools for a model, in a fixed order with loaded tools at the end.
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

// Call validates the arguments and runs a tool. It returns failures that the caller can handle and
// file system faults (domain.IsFileFault) as envelopes. An error means that the host is broken.
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
	// The model has not seen the schema of an unlisted tool, so the message contains it. The tool
	// is listed from the next request on.
	if e.Kind == KindInvalidArgs && r.unlisted.load(name) {
		e.Message += fmt.Sprintf("; the arguments of %s are %s", name, t.told)
	}
	return e, err
}

// FaultEnvelope returns the envelope of a call that failed because of a file system fault.
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

// runWithTimeout runs the tool's function and stops waiting for it after the timeout.
func (t Tool) runWithTimeout(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error) {
	// A negative timeout means that the tool limits itself and that its end must be awaited.
	if t.spec.Timeout < 0 {
		o := t.runRecovered(ctx, in, args)
		return o.envelope, o.err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, t.spec.Timeout, timeoutError{t.spec.Timeout})
	defer cancel()

	// The channel is buffered so that a tool that ends after the timeout does not block forever.
	done := make(chan outcome, 1)
	go func() { done <- t.runRecovered(ctx, in, args) }()
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		// A tool that watches its context ends now and returns the best message. Other tools are
		// abandoned.
		select {
		case o = <-done:
		case <-time.After(time.Second):
			o.err = context.Cause(ctx)
		}
	}

	// A success at the moment of the timeout remains a success.
	var late timeoutError
	if errors.As(context.Cause(ctx), &late) && (o.err != nil || !o.envelope.OK) {
		if t.spec.Effect == domain.EffectWrite || t.spec.Effect == domain.EffectExternal {
			return Failure(KindTimeout, "the call did not end within %s; whether it took effect is unknown", late.after), nil
		}
		return Failure(KindTimeout, "the call did not end within %s", late.after), nil
	}

	// If the run is cancelled, errors of tools do not mean that the host is broken.
	if o.err != nil && ctx.Err() != nil {
		return Failure(KindExecutionError, "cancelled: %v", context.Cause(ctx)), nil
	}

	return o.envelope, o.err
}

// runRecovered runs the tool's function. It converts a panic into a failed call.
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

// Unlisted is the set of a run's tools that are omitted from the list for models until they are
// loaded. Registries derived from each other share it. A nil *Unlisted is empty.
type Unlisted struct {
	names []string // sorted

	mu     sync.Mutex
	loaded []string // names of loaded tools, in loading order
}

// NewUnlisted returns a set of the given names. loaded contains the names that an earlier attempt
// has loaded.
func NewUnlisted(names []string, loaded ...string) *Unlisted {
	u := &Unlisted{names: slices.Sorted(slices.Values(names))}
	for _, name := range loaded {
		u.load(name)
	}
	return u
}

// Names returns the sorted names of all tools in the set. The caller must not change the slice.
func (u *Unlisted) Names() []string {
	if u == nil {
		return nil
	}
	return u.names
}

// Loaded returns the names of the loaded tools in loading order. The caller must not change the
// slice.
func (u *Unlisted) Loaded() []string {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clip(u.loaded)
}

// Load adds a tool to the list for models from the next request on. It ignores tools outside the
// set.
func (u *Unlisted) Load(name string) { u.load(name) }

// load is like Load and reports whether the tool was newly listed.
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

// sentenceEnd matches the end of a sentence or a colon, but not a period within a word.
var sentenceEnd = regexp.MustCompile(`[.:]\s`)

// BriefForModel returns the tool for a model with a small context. The description is one sentence,
// and the schema describes only the required arguments. Calls are validated with the full schema.
func (t Tool) BriefForModel() model.Tool {
	return model.Tool{Name: t.Name(), Description: cmp.Or(t.spec.Brief, t.spec.FirstSentence()), Schema: briefSchema(t.told)}
}

// FirstSentence returns the first sentence of the description, which contains the tool's purpose.
func (s Spec) FirstSentence() string {
	text := strings.Join(strings.Fields(s.Description), " ") + " "
	if end := sentenceEnd.FindStringIndex(text); end != nil {
		text = text[:end[0]] + "."
	}
	return strings.TrimSpace(text)
}

// briefSchema returns a schema without the descriptions of optional arguments.
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

// dropDescriptions removes the descriptions from a schema and from all nested schemas. If keep is
// set, the schema keeps its own description.
func dropDescriptions(schema any, keep bool) {
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}

	if !keep {
		delete(s, "description")
	}

	// A key named description in properties is an argument and must be kept.
	properties, _ := s["properties"].(map[string]any)
	for _, p := range properties {
		dropDescriptions(p, false)
	}
	dropDescriptions(s["items"], false)
}
