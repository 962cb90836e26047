package tool

import "strings"

// Taint is a set of labels for the data that a run has met. The host sets them, and they only grow.
type Taint uint8

// The labels (docs/security.md). No run holds all three without its owner's approval.
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
