package loop_test

import (
	"context"
	"iter"
	"testing"

	"rouse/agent/model"
	"rouse/internal/progress"
)

// streamed is a model that calls between for each part of its answer.
type streamed struct{ between func(part int) }

func (s streamed) Stream(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for i, part := range []string{"All ", "is ", "well."} {
			if !yield(model.Event{Text: part}, nil) {
				return
			}
			s.between(i)
		}
	}
}

// shown shows all of a text.
type shown struct{}

func (shown) Begun(text string) string { return text }

// TestAnswerIsSeenWhileItComes checks that a part of an answer is visible before the next part
// arrives, until the answer is recorded (OSA-26).
func TestAnswerIsSeenWhileItComes(t *testing.T) {
	var board progress.Tracker
	seen := board.Begin(1, "j", shown{})
	var texts []string
	look := func(int) {
		s := board.States(1, "")[0]
		if s.Step != 1 {
			t.Errorf("%+v", s)
		}
		texts = append(texts, s.Text)
	}

	b := setup(t, say("unused"))
	b.o.Provider = streamed{look}
	b.run(t, seen.With(t.Context()))
	look(0)
	for i, want := range []string{"All ", "All is ", "All is well.", ""} {
		if texts[i] != want {
			t.Errorf("%d: %q, want %q", i, texts[i], want)
		}
	}
}
