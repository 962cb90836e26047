package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"rouse/internal/jsonread"
	"rouse/internal/ledger/label"
)

// Access is what one call would do. The authorizer decides on it before the call is made.
type Access struct {
	Refused *Envelope // answers a call that nobody could allow; the other fields do not count then
	// MissingGrant says which grant the call lacks; "" if the agent's grants cover it. Grant is the
	// setting that would grant it, or "".
	MissingGrant, Grant string
	NeedsApproval       bool // although the grants cover the call
	NoStandingApproval  bool // every single call needs an approval (OSL-18)
	// Action is what an approval holds for, together with the agent and the tool: two calls have the
	// same text exactly if they do the same. If it is "", the normalised arguments are used.
	Action    string
	Shown     string // the action as a person reads it: the exact argv, destination or difference
	AddsTaint Taint  // the labels that the call brings to the run
	// OnlyAddress marks a request that sends only its address, to a host that is granted by name. It
	// has the label Outward only in a run with private data, which the address could carry.
	OnlyAddress bool
	NotPrivate  string // the setting or command that makes the data it reads not private, or ""
	// Reads are the places that the call shows: it brings their labels, too. Writes get the labels of
	// the run.
	Reads, Writes []label.Place
	WritesMemory  bool   // it may write all that the agent keeps: its database and its files
	Tier          string // the confinement of the program that the call starts, or ""
	// Bind is called only if an approval is needed. It adds to the action what has to be looked up,
	// such as the content of files. It may refuse the call, or rule out a standing approval. Optional.
	Bind func(Access) (Access, error)
}

// Labels returns the labels that a call adds to a run that already has others.
func (n Access) Labels(held Taint) Taint {
	if n.OnlyAddress && (held|n.AddsTaint)&Private != 0 {
		return n.AddsTaint | Outward
	}
	return n.AddsTaint
}

// AccessFunc returns what a call would do.
type AccessFunc func(ctx context.Context, in Invocation, args json.RawMessage) (Access, error)

// AccessOf adapts a function of typed arguments to Spec.Needs.
func AccessOf[A any](of func(ctx context.Context, in Invocation, args A) (Access, error)) AccessFunc {
	return func(ctx context.Context, in Invocation, args json.RawMessage) (Access, error) {
		var a A
		if err := jsonread.UnmarshalNumbers(args, &a); err != nil { // large ids stay exact
			return Access{}, fmt.Errorf("the arguments were not understood: %w", err)
		}
		return of(ctx, in, a)
	}
}

// RefusedAccess turns the error of a refused call into a need that refuses it.
func RefusedAccess(n Access, err error) (Access, error) {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return Access{Refused: &refusal.Envelope}, nil
	}
	return n, err
}

// Access returns what a call would do; the zero Need if its arguments will be refused. A tool without
// Needs that is not Confined may do anything: each call needs an approval and brings all labels.
func (t Tool) Access(ctx context.Context, in Invocation, args json.RawMessage) (Access, error) {
	if t.spec.Access == nil && t.spec.Confined() {
		return Access{}, nil
	}

	fitting, err := t.validate(args)
	if err != nil {
		return Access{}, nil //nolint:nilerr // the call itself says what is wrong with them
	}
	if t.spec.Access != nil {
		n, err := RefusedAccess(t.spec.Access(ctx, in, fitting))
		n.Action = cmp.Or(n.Action, string(fitting)) // also without a missing grant: a label may be the reason to ask
		return n, err
	}
	return Access{
		MissingGrant: "no grant covers " + t.spec.Name + ", which may do anything",
		Action:       string(fitting), AddsTaint: AllTaints, WritesMemory: true,
	}, nil
}

// Taint is a set of labels for the data that a run has met. The host sets them, and they only grow.
type Taint uint8

// The labels (docs/dev/security-tests.md). No run holds all three without its owner's approval.
const (
	Untrusted Taint = 1 << iota // A: content that strangers may have written
	Private                     // B: data from outside the agent's own places, and secrets
	Outward                     // C: an effect beyond the host's undo, or beyond the host
)

// AllTaints is the set of all labels.
const AllTaints = Untrusted | Private | Outward

// Labels lists the letters, in order.
func (t Taint) Labels() []string {
	out := []string{} // as JSON this is [], not null
	for i, letter := range []string{"A", "B", "C"} {
		if t&(1<<i) != 0 {
			out = append(out, letter)
		}
	}
	return out
}

func (t Taint) String() string { return strings.Join(t.Labels(), "") }

// ParseTaint reads what String writes, and ignores other characters.
func ParseTaint(text string) (t Taint) {
	for i, letter := range []string{"A", "B", "C"} {
		if strings.Contains(text, letter) {
			t |= 1 << i
		}
	}
	return t
}
