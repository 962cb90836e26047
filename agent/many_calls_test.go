package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"strconv"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// manyCalls is a model that makes 24 calls in each answer. It reads eight files, writes eight and
// reads eight more.
type manyCalls struct{ turns, answered int }

// Stream implements model.Provider.
func (m *manyCalls) Stream(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if m.answered == m.turns {
			yield(model.Event{Text: "All of it is done."}, nil)
			return
		}

		for i := range 24 {
			c := model.Call{ID: fmt.Sprintf("c%d-%d", m.answered, i), Name: "file_read", Args: json.RawMessage(fmt.Sprintf(`{"path":%q}`, m.file(m.answered, i)))}
			if i >= 8 && i < 16 {
				c.Name, c.Args = "file_write", json.RawMessage(fmt.Sprintf(`{"path":"out/%d.txt","content":"turn %d"}`, i, m.answered))
			}
			if !yield(model.Event{Call: &c}, nil) {
				return
			}
		}
		m.answered++
	}
}

// file returns the name of the file that a call reads. Each file is read once.
func (m *manyCalls) file(turn, i int) string { return fmt.Sprintf("in/%d-%d.txt", turn, i) }

// TestManyCallsInOneTurn checks that the record of calls keeps its order if a model reads and
// writes many files in each turn. ROUSE_TEST_TURNS sets the number of turns.
func TestManyCallsInOneTurn(t *testing.T) {
	t.Parallel()
	turns := 12
	if n, err := strconv.Atoi(os.Getenv("ROUSE_TEST_TURNS")); err == nil {
		turns = n
	}

	m := &manyCalls{turns: turns}
	b := furnish(t, nil, m)
	for turn := range turns {
		for i := range 24 {
			b.put("work/"+m.file(turn, i), "some text")
		}
	}
	b.plan.Jobs["many"] = plan.Job{Name: "many", Agent: "clerk", Prompt: "Read and write.", Bounds: loop.Bounds{Steps: turns + 2, Calls: 24 * turns, Tokens: -1, Wall: -1}}
	id := b.enqueue(ledger.Request{Job: "many", Agent: "clerk"})
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%s: %s", res.Outcome, res.Error)
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 24*turns {
		t.Fatalf("%d calls are on record, want %d (%v)", len(calls), 24*turns, err)
	}
}
