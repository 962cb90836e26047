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

// Access describes the effects of one call. The authorizer decides on it before the call is made.
type Access struct {
	// Refused is the answer to a call that no approval can allow. If it is set, the other fields
	// are ignored.
	Refused *Envelope
	// MissingGrant describes the grant that the call lacks, or is "" if the agent's grants cover
	// the call. Grant is the setting that would grant it, or "".
	MissingGrant, Grant string
	NeedsApproval       bool // approval required even if the grants cover the call
	NoStandingApproval  bool // each call needs its own approval
	// Action identifies the action to which an approval applies, together with the agent and the
	// tool. Two calls must have the same Action if and only if they do the same. If empty, the
	// normalized arguments are used.
	Action    string
	Shown     string // action for display: the exact argv, destination or difference
	AddsTaint Taint  // labels that the call adds to the run
	// OnlyAddress marks a request to a host granted by name that sends only its URL. It has the
	// label Outward only in a run with private data, because the URL could contain that data.
	OnlyAddress bool
	NotPrivate  string // setting or command that declares the data read by the call not private, or ""
	// Reads lists the places that the call reads; it adds their labels to the run. Writes lists the
	// places that it writes; they get the labels of the run.
	Reads, Writes []label.Place
	WritesMemory  bool   // the call may write anywhere in the agent's database and files
	Tier          string // sandbox tier of the program that the call starts, or ""
	// Bind adds details to the action that need a lookup, such as the content of files. It is
	// called only if an approval is needed. It may refuse the call, or exclude a standing approval.
	// Optional.
	Bind func(Access) (Access, error)
}

// Labels returns the labels that a call adds to a run with the labels held.
func (n Access) Labels(held Taint) Taint {
	if n.OnlyAddress && (held|n.AddsTaint)&Private != 0 {
		return n.AddsTaint | Outward
	}
	return n.AddsTaint
}

// AccessFunc returns the Access of a call without making the call.
type AccessFunc func(ctx context.Context, in Invocation, args json.RawMessage) (Access, error)

// AccessOf adapts a function with typed arguments to Spec.Access.
func AccessOf[A any](of func(ctx context.Context, in Invocation, args A) (Access, error)) AccessFunc {
	return func(ctx context.Context, in Invocation, args json.RawMessage) (Access, error) {
		var a A
		if err := jsonread.UnmarshalNumbers(args, &a); err != nil { // large ids stay exact
			return Access{}, fmt.Errorf("the arguments were not understood: %w", err)
		}
		return of(ctx, in, a)
	}
}

// RefusedAccess converts a *Refusal into an Access that refuses the call. It returns other errors
// unchanged.
func RefusedAccess(n Access, err error) (Access, error) {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return Access{Refused: &refusal.Envelope}, nil
	}
	return n, err
}

// Access returns the Access of a call, or the zero Access if the arguments are invalid. If the spec
// has no Access function and is not Confined, each call needs an approval and adds all labels.
func (t Tool) Access(ctx context.Context, in Invocation, args json.RawMessage) (Access, error) {
	if t.spec.Access == nil && t.spec.Confined() {
		return Access{}, nil
	}

	fitting, err := t.validate(args)
	if err != nil {
		return Access{}, nil //nolint:nilerr // the call itself reports the error
	}
	if t.spec.Access != nil {
		n, err := RefusedAccess(t.spec.Access(ctx, in, fitting))
		n.Action = cmp.Or(n.Action, string(fitting)) // even if no grant is missing, because a label may require an approval
		return n, err
	}
	return Access{
		MissingGrant: "no grant covers " + t.spec.Name + ", which may do anything",
		Action:       string(fitting), AddsTaint: AllTaints, WritesMemory: true,
	}, nil
}

// Taint is a set of labels for the data that a run has read. Labels are only ever added.
type Taint uint8

// The labels, see docs/dev/security-tests.md. A run gets all three only with its owner's approval.
const (
	Untrusted Taint = 1 << iota // label A: content that strangers may have written
	Private                     // label B: data from outside the agent's own folders, and secrets
	Outward                     // label C: effects outside the host, or effects that cannot be undone
)

// AllTaints is the set of all labels.
const AllTaints = Untrusted | Private | Outward

// Labels returns the letters of the labels, in order.
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

// ParseTaint parses the output of String. It ignores other characters.
func ParseTaint(text string) (t Taint) {
	for i, letter := range []string{"A", "B", "C"} {
		if strings.Contains(text, letter) {
			t |= 1 << i
		}
	}
	return t
}
