package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"rouse/agentdb/ledger"
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
	// The arguments, normalised, when a tool says nothing else.
	Action string
	// Shown is the action as a person reads it: the exact argv, destination or difference.
	Shown     string
	AddsTaint Taint // the labels that the call brings to the run
	// OnlyAddress marks a request that sends only its address, to a host that is granted by name. It has the label Outward
	// only in a run that holds private data, because an address can carry such data.
	OnlyAddress bool
	// Grant is the setting of the agent that would grant the call. NotPrivate is the setting or command that makes the data it
	// reads not private. Both are "" if there is none.
	Grant, NotPrivate string
	// Reads are the places that the call shows: it brings their labels, too. Writes are those that it
	// changes, which get the labels of the run.
	Reads, Writes []ledger.Place
	// WritesMemory marks a call that may write all that the agent keeps: its database, and its files.
	WritesMemory bool
	// Tier is the confinement of the program that the call starts, "" when it starts none.
	Tier string
	// Bind is called when an approval is needed, and only then: it adds to the action what is worth finding
	// out for that alone, such as the content of files. It may refuse the call, or rule out a standing
	// approval. nil: nothing is to be added.
	Bind func(Need) (Need, error)
}

// Labels returns the labels that a call adds to a run that already has others.
func (n Need) Labels(held Taint) Taint {
	if n.OnlyAddress && (held|n.AddsTaint)&Private != 0 {
		return n.AddsTaint | Outward
	}
	return n.AddsTaint
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

// RefusingFirst adapts a check of the arguments alone to Spec.Needs: a call that it answers is refused before anybody is
// asked about it, any other has the need that then tells.
func RefusingFirst[A any](check func(args A) *Envelope, then func(context.Context, Invocation, json.RawMessage) (Need, error)) func(context.Context, Invocation, json.RawMessage) (Need, error) {
	return func(ctx context.Context, in Invocation, args json.RawMessage) (Need, error) {
		need := Needs(func(_ context.Context, _ Invocation, a A) (Need, error) { return Need{Refused: check(a)}, nil })
		if n, err := need(ctx, in, args); err != nil || n.Refused != nil {
			return n, err
		}
		return then(ctx, in, args)
	}
}

// Need is what a call would do; nothing for a call whose arguments will be refused. A tool that neither
// says what its calls do nor is Confined may do anything: each call needs an approval and brings all
// labels.
func (t Tool) Need(ctx context.Context, in Invocation, args json.RawMessage) (Need, error) {
	if t.spec.Needs == nil && t.spec.Confined() {
		return Need{}, nil
	}

	fitting, err := t.validate(args)
	if err != nil {
		return Need{}, nil //nolint:nilerr // the call itself says what is wrong with them
	}
	if t.spec.Needs != nil {
		n, err := t.spec.Needs(ctx, in, fitting)
		if n.Action == "" { // also of what needs no grant: a label may be the reason to ask
			n.Action = string(fitting)
		}
		return n, err
	}

	return Need{
		MissingGrant: "no grant covers " + t.spec.Name + ", which may do anything",
		Action:       string(fitting), AddsTaint: AllTaints, WritesMemory: true,
	}, nil
}
