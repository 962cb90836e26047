package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// defaultTimeout bounds a call in wall time (OSA-11).
const defaultTimeout = 120 * time.Second

// Effect is the worst that a tool can do; it decides what may be repeated after a crash.
type Effect string

// The effects. They are the ledger's words.
const (
	Read     Effect = "read"
	Database Effect = "database" // happens once, by the agent database's journal
	Write    Effect = "write"
	External Effect = "external"
)

// Class says how the loop treats the calls of a tool beside their effect.
type Class string

// The classes. A tool without one is called as often as a model wants.
const (
	ClassOther  Class = ""
	ClassRead   Class = "read"   // of one path: gives the same until that changes (OSA-12)
	ClassSearch Class = "search" // of many files: gives the same until any of them changes
	ClassEdit   Class = "edit"   // of one path
	ClassExec   Class = "exec"   // may change anything
	ClassData   Class = "data"   // moves many rows: its steps may be free (OSA-23)
	ClassPlan   Class = "plan"   // keeps the agent's own list or plan (OSA-14)
)

// Invocation says on whose behalf a tool is called.
type Invocation struct {
	Run        int64
	Attempt    int
	Job, Agent string
	Key        string // of the call, stable across attempts
}

// Spec describes a tool.
type Spec struct {
	Name, Description string
	Effect            Effect
	Ends              bool                // a success ends the run (OSA-06)
	Waits             bool                // a success that ends the attempt, not the run: it waits for a person (OSA-18)
	Timeout           time.Duration       // 0 means 120s; below 0 the tool ends by itself, and soon when its context does: it is waited for
	Enum              map[string][]string // allowed values of string arguments
	Class             Class
	// Reads says of a call that it only reads, whatever the tool does in others; nil: of none.
	Reads func(args json.RawMessage) bool
	// Path names the argument whose file is read or written: calls that write the same path
	// take turns. Canonical gives the many names of one file one; nil takes them as they are.
	Path      string
	Canonical func(path string) string
	// Look says what a path looks like now, so that a file that somebody else changed is read
	// again; nil: only the run's own calls change it.
	Look func(path string) string
	// Needs tells the gate what a call would do; nil: nothing beyond what every run may do.
	// It changes nothing, and gets arguments that fit the schema.
	Needs func(ctx context.Context, in Invocation, args json.RawMessage) (Need, error)
}

// Tool is a defined tool.
type Tool struct {
	spec   Spec
	schema *jsonschema.Schema
	raw    json.RawMessage
	run    func(context.Context, Invocation, json.RawMessage) (Envelope, error)
}

// Define makes a tool of a function. The schema is that of A: fields without omitempty are
// required, `jsonschema:"…"` describes them.
func Define[A any](s Spec, run func(ctx context.Context, in Invocation, args A) (Envelope, error)) (Tool, error) {
	schema, err := jsonschema.For[A](nil)
	if err != nil {
		return Tool{}, fmt.Errorf("tool %s: its arguments have no schema: %w", s.Name, err)
	}
	for field, values := range s.Enum {
		p, ok := schema.Properties[field]
		if !ok {
			return Tool{}, fmt.Errorf("tool %s: there is no argument %s", s.Name, field)
		}
		for _, v := range values {
			p.Enum = append(p.Enum, v)
		}
	}
	raw, err := json.Marshal(schema)
	if err != nil {
		return Tool{}, fmt.Errorf("tool %s: its schema cannot be written: %w", s.Name, err)
	}
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	call := func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error) {
		var a A
		dec := json.NewDecoder(bytes.NewReader(args))
		dec.UseNumber()
		if err := dec.Decode(&a); err != nil {
			return Failure(KindInvalidArgs, "the arguments were not understood: %v", err), nil
		}
		return run(ctx, in, a)
	}
	return Tool{s, schema, raw, call}, nil
}

// Answered is the tool as its callers know it, with another answer: nothing that t does is
// done, and no file is looked at.
func (t Tool) Answered(by func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error)) Tool {
	t.run, t.spec.Look, t.spec.Canonical, t.spec.Needs = by, nil, nil, nil
	return t
}

// Unless is the tool, but for calls that by answers instead.
func (t Tool) Unless(by func(ctx context.Context, args json.RawMessage) (Envelope, bool)) Tool {
	run := t.run
	t.run = func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error) {
		if e, answered := by(ctx, args); answered {
			return e, nil
		}
		return run(ctx, in, args)
	}
	return t
}

// Then is the tool, with what f makes of its answers.
func (t Tool) Then(f func(Envelope) Envelope) Tool {
	run := t.run
	t.run = func(ctx context.Context, in Invocation, args json.RawMessage) (Envelope, error) {
		e, err := run(ctx, in, args)
		return f(e), err
	}
	return t
}

// Name is what a model calls it by.
func (t Tool) Name() string { return t.spec.Name }

// Description is what a model is told.
func (t Tool) Description() string { return t.spec.Description }

// Schema is the JSON Schema of its arguments.
func (t Tool) Schema() json.RawMessage { return t.raw }

// Effect is the worst that it can do.
func (t Tool) Effect() Effect { return t.spec.Effect }

// EffectOf is the worst that a call can do.
func (t Tool) EffectOf(args json.RawMessage) Effect {
	if t.spec.Reads != nil && t.spec.Reads(args) {
		return Read
	}
	return t.spec.Effect
}

// Ends says whether a success ends the run.
func (t Tool) Ends() bool { return t.spec.Ends }

// Waits says whether a success makes the run wait for a person; such a tool also Ends.
func (t Tool) Waits() bool { return t.spec.Waits }

// Class is how the loop treats its calls.
func (t Tool) Class() Class { return t.spec.Class }

// WritesTo is the path that a call would write, "" when it writes none.
func (t Tool) WritesTo(args json.RawMessage) string {
	if t.spec.Effect == Read {
		return ""
	}
	return t.Touches(args)
}

// Touches is the path that a call is about, in one of its names, "" when it is about none.
func (t Tool) Touches(args json.RawMessage) string {
	path := t.path(args)
	if path != "" && t.spec.Canonical != nil {
		return t.spec.Canonical(path)
	}
	return path
}

// Looks says what the path of a call looks like now; "" where nobody can tell.
func (t Tool) Looks(args json.RawMessage) string {
	if t.spec.Look == nil {
		return ""
	}
	path := t.path(args)
	if path == "" {
		return ""
	}
	return t.spec.Look(path)
}

func (t Tool) path(args json.RawMessage) string {
	if t.spec.Path == "" {
		return ""
	}
	m, err := fitted(t.schema, args)
	if err != nil {
		return "" // the call will be refused
	}
	path, _ := m[t.spec.Path].(string)
	return path
}
