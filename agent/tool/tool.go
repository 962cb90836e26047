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
	Timeout           time.Duration       // 0 means 120s, below 0 none
	Enum              map[string][]string // allowed values of string arguments
	// Path names the argument whose file is written: calls on the same path take turns.
	// Canonical gives the many names of one file one; nil takes them as they are.
	Path      string
	Canonical func(path string) string
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

// Name is what a model calls it by.
func (t Tool) Name() string { return t.spec.Name }

// Description is what a model is told.
func (t Tool) Description() string { return t.spec.Description }

// Schema is the JSON Schema of its arguments.
func (t Tool) Schema() json.RawMessage { return t.raw }

// Effect is the worst that it can do.
func (t Tool) Effect() Effect { return t.spec.Effect }

// Ends says whether a success ends the run.
func (t Tool) Ends() bool { return t.spec.Ends }

// WritesTo is the path that a call would write, "" when it writes none.
func (t Tool) WritesTo(args json.RawMessage) string {
	if t.spec.Path == "" {
		return ""
	}
	fitted, err := validate(t.schema, args)
	if err != nil {
		return "" // the call will be refused
	}
	var m map[string]any
	if json.Unmarshal(fitted, &m) != nil {
		return ""
	}
	path, _ := m[t.spec.Path].(string)
	if path != "" && t.spec.Canonical != nil {
		return t.spec.Canonical(path)
	}
	return path
}
