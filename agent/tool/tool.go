package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"rouse/internal/domain"
	"rouse/internal/jsonread"
)

// defaultTimeout is the time limit of a call if Spec.Timeout is zero.
const defaultTimeout = 120 * time.Second

// Invocation identifies the run and the call for which a tool is called.
type Invocation struct {
	Run        int64
	Attempt    int
	Job, Agent string
	Key        string // key of the call, stable across attempts
	// Approved is the ActionHash of the action that the owner approved for this call, or "". The
	// tool must check that its files have not changed since.
	Approved string
	// MustSucceed is the default of the argument must_succeed: a failing program or a server error
	// fails the call. It is set for playbooks, because only models read exit codes.
	MustSucceed bool
}

// modelAnswer matches the beginning of a key of a model's call: its attempt and step.
var modelAnswer = regexp.MustCompile(`^m\d+\.\d+`)

// AnswerKey returns the common prefix of the keys of all calls of one answer, including nested
// calls.
func AnswerKey(key string) string {
	if answer := modelAnswer.FindString(key); answer != "" {
		return answer
	}
	outer, _, _ := strings.Cut(key, "~") // see loop.InnerKey
	return outer
}

// Requires returns the value of a call's argument must_succeed, or the default if it is nil.
func (in Invocation) Requires(success *bool) bool {
	if success != nil {
		return *success
	}
	return in.MustSucceed
}

// Tool is a defined tool.
type Tool struct {
	spec   *Spec // spec with defaults filled in
	schema *jsonschema.Schema
	told   json.RawMessage // plain subset of schema, for models
	run    func(context.Context, Invocation, json.RawMessage) (Envelope, error)
}

// Define returns a tool that calls run. The schema is derived from A: fields without omitempty are
// required, and jsonschema tags contain their descriptions. It returns an error if the spec is
// invalid.
func Define[A any](s Spec, run func(ctx context.Context, in Invocation, args A) (Envelope, error)) (Tool, error) {
	args := reflect.TypeFor[A]()
	if s.Args == nil {
		s.Args = args
	}
	if err := s.Check(); err != nil {
		return Tool{}, err
	}
	if s.Args != args {
		return Tool{}, fmt.Errorf("tool %s: its spec says that it takes %s, and its function takes %s", s.Name, s.Args, args)
	}

	schema, err := s.typed()
	if err != nil {
		return Tool{}, err
	}

	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}

	call := func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error) {
		var a A
		if err := jsonread.UnmarshalNumbers(args, &a); err != nil { // large ids in free-form arguments stay exact
			return Failure(KindInvalidArgs, "the arguments were not understood: %v", err), nil
		}
		return Answered(run(ctx, in, a))
	}
	return Tool{&s, schema.checks, schema.told, call}, nil
}

// DefineChecked is like Define but also validates the arguments with check. check is called before
// the owner is asked for an approval, and again when the call is made.
func DefineChecked[A any](s Spec, check func(args A) error, run func(ctx context.Context, in Invocation, args A) (Envelope, error)) (Tool, error) {
	needs, checked := s.Access, AccessOf(func(_ context.Context, _ Invocation, a A) (Access, error) { return Access{}, check(a) })
	s.Access = func(ctx context.Context, in Invocation, args json.RawMessage) (Access, error) {
		if n, err := checked(ctx, in, args); err != nil {
			return n, err
		}
		return needs(ctx, in, args)
	}
	return Define(s, func(ctx context.Context, in Invocation, a A) (Envelope, error) {
		if err := check(a); err != nil {
			return Envelope{}, err
		}
		return run(ctx, in, a)
	})
}

// WithHandler returns a copy of the tool that calls another function.
func (t Tool) WithHandler(by func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error)) Tool {
	spec := *t.spec
	// NoNeeds instead of nil, because a tool without Access needs an approval for each call.
	spec.StatKey, spec.Canonical, spec.Access = nil, nil, NoNeeds
	t.run, t.spec = by, &spec
	return t
}

// WithOverride returns a copy of the tool that first calls by. If by returns false, the copy calls
// the tool's own function.
func (t Tool) WithOverride(by func(ctx context.Context, args json.RawMessage) (Envelope, bool)) Tool {
	run := t.run
	t.run = func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error) {
		if e, answered := by(ctx, args); answered {
			return e, nil
		}
		return run(ctx, in, args)
	}

	return t
}

// MapResult returns a copy of the tool that passes its results through f.
func (t Tool) MapResult(f func(Envelope) Envelope) Tool {
	run := t.run
	t.run = func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error) {
		e, err := run(ctx, in, args)
		return f(e), err
	}
	return t
}

// Spec returns the spec of the tool.
func (t Tool) Spec() Spec { return *t.spec }

// Name returns the name of the tool.
func (t Tool) Name() string { return t.spec.Name }

// Description returns the description for models.
func (t Tool) Description() string { return t.spec.Description }

// ModelSchema returns the JSON Schema of the arguments, in the subset that every model server
// supports.
func (t Tool) ModelSchema() json.RawMessage { return t.told }

// Effect returns the strongest effect of any call.
func (t Tool) Effect() domain.Effect { return t.spec.Effect }

// EffectOf returns the strongest effect of a call with these arguments.
func (t Tool) EffectOf(args json.RawMessage) domain.Effect {
	if t.spec.ReadsOnly != nil && t.spec.ReadsOnly(args) {
		return domain.EffectRead
	}
	return t.spec.Effect
}

// Ends reports whether a successful call ends the run.
func (t Tool) Ends() bool { return t.spec.Ends }

// Once reports whether a repeated call has no effect.
func (t Tool) Once() bool { return t.spec.Once }

// Waits reports whether a successful call can make the run wait for a person. Such a tool also
// Ends.
func (t Tool) Waits() bool { return t.spec.Waits }

// Nests reports whether a call is a run within the run.
func (t Tool) Nests() bool { return t.spec.Nests }

// Class returns the class of the tool.
func (t Tool) Class() Class { return t.spec.Class }

// WritePath returns the canonical path that a call writes, or "" if the call does not write a path.
func (t Tool) WritePath(args json.RawMessage) string {
	if t.spec.Effect == domain.EffectRead {
		return ""
	}
	return t.TargetPath(args)
}

// TargetPath returns the canonical path that a call reads or writes, or "" if it has no path.
func (t Tool) TargetPath(args json.RawMessage) string {
	path := t.pathArgument(args)
	if path != "" && t.spec.Canonical != nil {
		return t.spec.Canonical(path)
	}
	return path
}

// StatKey returns a string that changes if the file of a call changes, or "" if that is not known.
func (t Tool) StatKey(args json.RawMessage) string {
	path := t.pathArgument(args)
	if path == "" || t.spec.StatKey == nil {
		return ""
	}
	return t.spec.StatKey(path)
}

func (t Tool) pathArgument(args json.RawMessage) string {
	if t.spec.Path == "" {
		return ""
	}

	m, err := t.coerce(args)
	if err != nil {
		return "" // the call will be refused
	}

	path, _ := m[t.spec.Path].(string)
	return path
}
