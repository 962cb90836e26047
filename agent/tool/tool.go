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

// defaultTimeout bounds a call in wall time when its spec does not (OSA-11).
const defaultTimeout = 120 * time.Second

// Invocation says on whose behalf a tool is called.
type Invocation struct {
	Run        int64
	Attempt    int
	Job, Agent string
	Key        string // of the call, stable across attempts
	// Approved is the hash of the action (ActionHash) that the owner has approved for this call; "" when it needed no
	// approval. What a tool does with files is that action only while they are the same.
	Approved string
	// MustSucceed says whether a program that fails, or a server that answers with an error, is a failure of
	// the call where the call does not say. A model reads exit codes; a list of calls does not.
	MustSucceed bool
}

// modelAnswer is the beginning of the key of a call that a model made: its attempt and its step.
var modelAnswer = regexp.MustCompile(`^m\d+\.\d+`)

// AnswerKey returns what the keys of all calls of one answer have in common. Calls within a call belong to its answer.
func AnswerKey(key string) string {
	if answer := modelAnswer.FindString(key); answer != "" {
		return answer
	}
	outer, _, _ := strings.Cut(key, "~") // see loop.InnerKey
	return outer
}

// Requires is the value of the argument must_succeed of a call, nil when it was not given.
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
// required, `jsonschema:"…"` describes them. A spec that lacks what every tool must have is refused.
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
		return run(ctx, in, a)
	}

	return Tool{&s, schema.checks, schema.told, call}, nil
}

// WithHandler returns a tool that looks the same to its callers but is answered by another function:
// nothing of what t does is done, and no file is inspected.
func (t Tool) WithHandler(by func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error)) Tool {
	spec := *t.spec
	// Nothing instead of nil: a tool without Needs would be asked about at each call.
	spec.StatKey, spec.Canonical, spec.Needs = nil, nil, NoNeeds
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

// Spec is all that is known about the tool.
func (t Tool) Spec() Spec { return *t.spec }

// Name is what a model calls it by.
func (t Tool) Name() string { return t.spec.Name }

// Description is what a model reads about the tool.
func (t Tool) Description() string { return t.spec.Description }

// ModelSchema returns the JSON Schema of its arguments as a model is sent it, in the subset that every model server reads.
func (t Tool) ModelSchema() json.RawMessage { return t.told }

// Effect is the worst that any call can do.
func (t Tool) Effect() domain.Effect { return t.spec.Effect }

// EffectOf is the worst that this call can do.
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

// Class is how the loop treats the tool's calls.
func (t Tool) Class() Class { return t.spec.Class }

// WritePath is the canonical path that a call would write, "" when it writes none.
func (t Tool) WritePath(args json.RawMessage) string {
	if t.spec.Effect == domain.EffectRead {
		return ""
	}
	return t.TargetPath(args)
}

// TargetPath is the canonical path that a call reads or writes, "" when there is none.
func (t Tool) TargetPath(args json.RawMessage) string {
	path := t.pathArgument(args)
	if path != "" && t.spec.Canonical != nil {
		return t.spec.Canonical(path)
	}
	return path
}

// StatKey is a text that changes when the file of a call does; "" where nobody can tell.
func (t Tool) StatKey(args json.RawMessage) string {
	if t.spec.StatKey == nil {
		return ""
	}

	path := t.pathArgument(args)
	if path == "" {
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
