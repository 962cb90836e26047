package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// TestManyCallsInOneTurn has a model that reads and writes many files in each turn: the record of the calls keeps its order.
// ROUSE_TEST_TURNS sets how many turns there are.
func TestManyCallsInOneTurn(t *testing.T) {
	t.Parallel()
	turns := 12
	if n, err := strconv.Atoi(os.Getenv("ROUSE_TEST_TURNS")); err == nil {
		turns = n
	}

	var script []modeltest.Turn
	var files []string
	for turn := range turns {
		var calls []model.Call
		for i := range 24 {
			in := fmt.Sprintf("in/%d-%d.txt", turn, i) // read once
			name, args := "file_read", fmt.Sprintf(`{"path":%q}`, in)
			if i < 8 || i >= 16 {
				files = append(files, in)
			} else {
				name, args = "file_write", fmt.Sprintf(`{"path":"out/%d.txt","content":"turn %d"}`, i, turn)
			}
			calls = append(calls, model.Call{ID: fmt.Sprintf("c%d-%d", turn, i), Name: name, Args: json.RawMessage(args)})
		}
		script = append(script, modeltest.Turn{Calls: calls})
	}

	b := setup(t, append(script, modeltest.Turn{Text: "All of it is done."})...)
	for _, f := range files {
		b.put("work/"+f, "some text")
	}
	b.plan.Jobs["many"] = agent.Job{Name: "many", Agent: "clerk", Prompt: "Read and write.", Bounds: loop.Bounds{Steps: turns + 2, Calls: 24 * turns, Tokens: -1}}
	id := b.enqueue(ledger.Request{Job: "many", Agent: "clerk"})
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%s: %s", res.Outcome, res.Error)
	}

	calls, err := b.ledger.Calls(t.Context(), id)
	if err != nil || len(calls) != 24*turns {
		t.Fatalf("%d calls are on record, want %d (%v)", len(calls), 24*turns, err)
	}
}
