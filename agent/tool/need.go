package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// Need is what one call would do. Its tool says so before the call is made, and the authorizer decides
// on it.
type Need struct {
	// Refused answers a call that nobody could allow; the other fields do not count then.
	Refused *Envelope
	// Missing says which grant the call lacks, for its owner and the model; "" when the
	// agent's grants cover it.
	MissingGrant string
	// Asks requires an approval although the grants cover the call.
	NeedsApproval bool
	// Each requires an approval for every single call: no standing approval counts (OSL-18).
	NoStandingApproval bool
	// Action is what an approval holds for, together with the agent and the tool: two calls have the
	// same text exactly when they do the same.
	Action string
	// Shown is the action as a person reads it: the exact argv, destination or difference.
	Shown     string
	AddsTaint Taint // the labels that the call brings to the run
	// Keeps marks a call that writes what later runs of the agent read: its database, or its files.
	WritesMemory bool
	// Tier is the confinement of the program that the call starts, "" when it starts none.
	Tier string
}

// Needs adapts a function of typed arguments to Spec.Needs.
func Needs[A any](of func(ctx context.Context, in Invocation, args A) (Need, error)) func(context.Context, Invocation, json.RawMessage) (Need, error) {
	return func(ctx context.Context, in Invocation, args json.RawMessage) (Need, error) {
		var a A
		dec := json.NewDecoder(bytes.NewReader(args))
		dec.UseNumber() // an id of 17 digits would lose the last ones as a float64
		if err := dec.Decode(&a); err != nil {
			return Need{}, fmt.Errorf("the arguments were not understood: %w", err)
		}
		return of(ctx, in, a)
	}
}

// Need is what a call would do; nothing for a call whose arguments will be refused. A tool that neither
// says what its calls do nor is Confined may do anything: each call needs an approval and brings all
// labels.
func (t Tool) Need(ctx context.Context, in Invocation, args json.RawMessage) (Need, error) {
	if t.spec.Needs == nil && t.spec.Confined() {
		return Need{}, nil
	}

	fitting, err := validate(t.schema, args)
	if err != nil {
		return Need{}, nil //nolint:nilerr // the call itself says what is wrong with them
	}
	if t.spec.Needs != nil {
		return t.spec.Needs(ctx, in, fitting)
	}

	return Need{
		MissingGrant: "no grant covers " + t.spec.Name + ", which may do anything",
		Action:       string(fitting), AddsTaint: AllTaints, WritesMemory: true,
	}, nil
}
