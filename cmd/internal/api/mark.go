package api

import "rouse/internal/domain"

// Mark is the symbol of an outcome or a state on pages and in terminals. Shapes are distinct even
// without colors.
type Mark struct {
	Shape string
	Tone  string // good, grey, amber, bad or accent
}

var outcomeMarks = map[domain.Outcome]Mark{
	domain.OutcomeSuccess:     {"●", "good"},
	domain.OutcomeNothing:     {"○", "grey"},
	domain.OutcomePartial:     {"◐", "amber"},
	domain.OutcomeError:       {"▲", "bad"},
	domain.OutcomeTimeout:     {"⧗", "bad"},
	domain.OutcomeBudget:      {"$", "amber"},
	domain.OutcomeCancelled:   {"■", "grey"},
	domain.OutcomeInterrupted: {"⚡", "amber"},
	domain.OutcomeSkipped:     {"–", "grey"},
}

// MarkOf returns the mark of a run in a state, or with an outcome if it has finished.
func MarkOf(state domain.State, outcome domain.Outcome) Mark {
	switch state {
	case domain.StateRunning:
		return Mark{"◌", "accent"}
	case domain.StateQueued:
		return Mark{"·", "grey"}
	case domain.StateWaiting:
		return Mark{"?", "accent"}
	}
	if m, ok := outcomeMarks[outcome]; ok {
		return m
	}
	return Mark{"–", "grey"}
}

// ShapeTone returns the tone of a shape, or "" if the shape is unknown.
func ShapeTone(shape string) string {
	for _, state := range domain.States() {
		if m := MarkOf(state, ""); m.Shape == shape && state != domain.StateFinished {
			return m.Tone
		}
	}
	for _, m := range outcomeMarks {
		if m.Shape == shape {
			return m.Tone
		}
	}
	return ""
}
