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

// defaultTimeout bounds a call if its spec does not (OSA-11).
const defaultTimeout = 120 * time.Second

// Invocation says on whose behalf a tool is called.
type Invocation struct {
	Run        int64
	Attempt    int
	Job, Agent string
	Key        string // of the call, stable across attempts
	// Approved is the hash of the action (ActionHash) that the owner has approved for this call, or
	// "". The tool must check that its files have not changed since.
	Approved string
	// MustSucceed is the default of the argument must_succeed: whether a failing program, or an error
	// of a server, fails the call. A model reads exit codes; a list of calls does not.
	MustSucceed bool
}

// modelAnswer matches the beginning of the key of a call that a model made: its attempt and step.
var modelAnswer = regexp.MustCompile(`^m\d+\.\d+`)

// AnswerKey returns what the keys of all calls of one answer have in common, nested calls included.
func AnswerKey(key string) string {
	if answer := modelAnswer.FindString(key); answer != "" {
		return answer
	}
	outer, _, _ := strings.Cut(key, "~") // see loop.InnerKey
	return outer
}

// Requires returns the value of the argument must_succeed of a call, or its default.
func (in Invocation) Requires(success *bool) bool {
	if success != nil {
		return *success
	}
	return in.MustSucceed
}

// Tool is a defined tool.
type Tool struct {
	spec   *Spec // which is as Define got it
	schema *jsonschema.Schema
	told   json.RawMessage // its plain subset, for models
	run    func(context.Context, Invocation, json.RawMessage) (Envelope, error)
}

// Define makes a tool from a function. The schema is made from A: fields without omitempty are
// required, `jsonschema:"…"` describes them.
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

// DefineChecked is Define for a tool whose arguments are checked before its owner is asked about
// the call, and again when it is made.
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

// WithHandler returns a tool that looks the same to its callers but is answered by another
// function.
func (t Tool) WithHandler(by func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error)) Tool {
	spec := *t.spec
	// Nothing instead of nil: a tool without Needs would be asked about at each call.
	spec.StatKey, spec.Canonical, spec.Access = nil, nil, NoNeeds
	t.run, t.spec = by, &spec
	return t
}

// WithOverride returns the tool with some calls answered by another function instead.
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

// MapResult returns the tool with its answers passed through f.
func (t Tool) MapResult(f func(Envelope) Envelope) Tool {
	run := t.run
	t.run = func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error) {
		e, err := run(ctx, in, args)
		return f(e), err
	}
	return t
}

// Spec returns all that is known about the tool.
func (t Tool) Spec() Spec { return *t.spec }

// Name returns the name by which a model calls it.
func (t Tool) Name() string { return t.spec.Name }

// Description returns what a model reads about the tool.
func (t Tool) Description() string { return t.spec.Description }

// ModelSchema returns the JSON Schema of its arguments in the subset that every model server reads.
func (t Tool) ModelSchema() json.RawMessage { return t.told }

// Effect returns the worst effect of any call.
func (t Tool) Effect() domain.Effect { return t.spec.Effect }

// EffectOf returns the worst effect of this call.
func (t Tool) EffectOf(args json.RawMessage) domain.Effect {
	if t.spec.ReadsOnly != nil && t.spec.ReadsOnly(args) {
		return domain.EffectRead
	}
	return t.spec.Effect
}

// Ends reports whether a success ends the run.
func (t Tool) Ends() bool { return t.spec.Ends }

// Once reports whether a call may be made again without a trace.
func (t Tool) Once() bool { return t.spec.Once }

// Waits reports whether a success makes the run wait for a person; such a tool also Ends.
func (t Tool) Waits() bool { return t.spec.Waits }

// Nests reports whether a call is a run within the run.
func (t Tool) Nests() bool { return t.spec.Nests }

// Class returns how the loop treats the tool's calls.
func (t Tool) Class() Class { return t.spec.Class }

// WritePath returns the canonical path that a call would write, or "".
func (t Tool) WritePath(args json.RawMessage) string {
	if t.spec.Effect == domain.EffectRead {
		return ""
	}
	return t.TargetPath(args)
}

// TargetPath returns the canonical path that a call reads or writes, or "".
func (t Tool) TargetPath(args json.RawMessage) string {
	path := t.pathArgument(args)
	if path != "" && t.spec.Canonical != nil {
		return t.spec.Canonical(path)
	}
	return path
}

// StatKey returns a text that changes if the file of a call does, or "".
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
