package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Taint are the labels of what a run has met. They are set by the host and only grow.
type Taint uint8

// The labels (docs/security.md). No run holds all three without its owner's word.
const (
	Untrusted Taint = 1 << iota // A: content that strangers may have written
	Private                     // B: data from outside the agent's own places, and secrets
	Outward                     // C: an effect beyond the host's undo, or beyond the host
)

// AllTaints is what no run may hold by itself.
const AllTaints = Untrusted | Private | Outward

// Labels are the letters, in order.
func (t Taint) Labels() []string {
	out := []string{}
	for i, letter := range []string{"A", "B", "C"} {
		if t&(1<<i) != 0 {
			out = append(out, letter)
		}
	}
	return out
}

func (t Taint) String() string { return strings.Join(t.Labels(), "") }

// ParseTaint reads what String writes; other characters are not labels.
func ParseTaint(text string) (t Taint) {
	for i, letter := range []string{"A", "B", "C"} {
		if strings.Contains(text, letter) {
			t |= 1 << i
		}
	}
	return t
}

// Need is what one call would do, told by its tool to the gate before the call is made.
type Need struct {
	// Refused answers a call that nobody could allow; the rest does not count then.
	Refused *Envelope
	// Missing says which grant the call lacks, for its owner and the model; "" when the
	// agent's grants cover it.
	Missing string
	// Asks has its owner asked although the grants cover it.
	Asks bool
	// Each has its owner asked each time: nothing can be allowed for good (OSL-18).
	Each bool
	// Action is what an approval holds for, beside the agent and the tool: two calls that do
	// the same have the same text, and two that do not have different ones.
	Action string
	// Shown is the action as a person reads it: the exact argv, destination or difference.
	Shown string
	Adds  Taint // labels that the run has once the call is made
	// Keeps says that the call writes what later runs of the agent read: its database, or its files.
	Keeps bool
	// Tier confines the program that the call starts, "" where it starts none.
	Tier string
}

// Needs makes the Needs of a Spec of a function of the arguments.
func Needs[A any](of func(ctx context.Context, in Invocation, args A) (Need, error)) func(context.Context, Invocation, json.RawMessage) (Need, error) {
	return func(ctx context.Context, in Invocation, args json.RawMessage) (Need, error) {
		var a A
		dec := json.NewDecoder(bytes.NewReader(args))
		dec.UseNumber()
		if err := dec.Decode(&a); err != nil {
			return Need{}, fmt.Errorf("the arguments were not understood: %w", err)
		}
		return of(ctx, in, a)
	}
}

// Need is what a call would do; of a call that will be refused for its arguments it is nothing. A
// tool that neither says what its calls do nor stays within what every run may do needs its owner's
// word for each, and all labels.
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
		Missing: "no grant covers " + t.spec.Name + ", which may do anything",
		Action:  string(fitting), Adds: AllTaints, Keeps: true,
	}, nil
}
