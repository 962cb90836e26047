package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestTodoOutlivesAKill checks UNI-10: the todo list of an interrupted run is kept when it
// continues, with and without phases.
func TestTodoOutlivesAKill(t *testing.T) {
	t.Parallel()
	for _, phased := range []bool{false, true} {
		b := setup(t, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "todo", Args: json.RawMessage(`{"markdown":"- [x] read\n- [ ] write\n- [ ] tell"}`)}}}, modeltest.Turn{Fail: model.KindAuth},
			modeltest.Turn{Calls: []model.Call{{ID: "2", Name: "complete", Args: json.RawMessage(`{"summary":"Some of it is done, and the rest is not."}`)}}})
		clerk := b.plan.Agents["clerk"]
		clerk.Phased = phased
		b.plan.Agents["clerk"] = clerk
		id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Do it."}})
		b.run(id)
		if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
			t.Fatal(err)
		}
		if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
			t.Fatalf("%+v", res)
		}

		calls, err := b.ledger.Steps.Calls(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if last := calls[len(calls)-1]; last.Tool != "complete" || !strings.Contains(string(last.Envelope), "2 items of the todo list are open") {
			t.Errorf("phased %t: %s %s", phased, last.Tool, last.Envelope)
		}
	}
}
