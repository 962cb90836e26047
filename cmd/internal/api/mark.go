package api

import "rouse/internal/domain"

// Mark is the shape that stands beside what became of something, and the tone of its colour. The shapes differ without their colours. It is
// the same on pages and in terminals.
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

// MarkOf is the mark of a run that ended with an outcome, or stands in a state.
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

// ShapeTone is the tone of a shape, "" for what is none.
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
