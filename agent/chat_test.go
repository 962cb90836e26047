package agent_test

import (
	"fmt"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestChat checks OSA-01: a run of a conversation uses the policy of a chat. It has fewer steps
// unless the owner sets them, and ends with the first refused call.
func TestChat(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-01")
	few, many := row.Number("15"), row.Number("30")
	busy := func(chat bool, bound int) ledger.Result {
		t.Helper()
		var turns []modeltest.Turn
		for i := range 40 {
			turns = append(turns, modeltest.Turn{Calls: []model.Call{insertCall(fmt.Sprint(i), fmt.Sprint("row ", i))}})
		}
		b := setup(t, turns...)
		b.table()
		a := b.plan.Agents["clerk"]
		if a.Bounds.Steps = bound; bound == 0 { // default of the configuration
			a.Bounds.Steps, a.DefaultSteps = many, true
		}
		b.plan.Agents["clerk"] = a
		return b.ends(b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Go on.", Chat: chat}}))
	}
	chat, bound, headless := busy(true, 0), busy(true, 20), busy(false, 0)
	if chat.Exit != domain.ExitIterationCap || headless.Exit != domain.ExitIterationCap || headless.Steps-chat.Steps != many-few || bound.Steps-chat.Steps != 20-few {
		t.Errorf("a chat has %d steps (%s), with a bound of 20 it has %d, a run without one %d (%s)", chat.Steps, chat.Exit, bound.Steps, headless.Steps, headless.Exit)
	}

	for chat, want := range map[bool]domain.Exit{true: domain.Exit(row.Quote("tool_rejected")), false: domain.ExitEnded} {
		b := setup(t, turn("1", "file_read", `{"path":".env"}`), done)
		b.write("work/.env", "TOKEN=canary")
		a := b.plan.Agents["clerk"]
		b.plan.Agents["clerk"] = plan.Agent{Name: a.Name, Workdir: a.Workdir, Model: a.Model}
		if res := b.ends(b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Read it.", Chat: chat}})); res.Exit != want {
			t.Errorf("chat %v: %+v", chat, res)
		}
	}
}
