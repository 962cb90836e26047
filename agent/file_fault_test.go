package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"rouse/agent"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
)

// TestWorkdirGoneForAMoment removes the workdir during a run and restores it later. Calls that need
// the workdir fail, and the run continues.
func TestWorkdirGoneForAMoment(t *testing.T) {
	t.Parallel()
	calls := []model.Call{}
	for _, c := range []struct{ name, args string }{ // the notice is last, because it changes something and succeeds
		{"file_read", `{"path":"a.txt"}`},
		{"file_search", `{"pattern":"x"}`},
		{"file_write", `{"path":"sub/b.txt","content":"x"}`},
		{"file_edit", `{"path":"a.txt","old_text":"some","new_text":"any"}`},
		{"file_undo", `{"operation_id":"1/x"}`},
		{"db_query", `{"sql":"select 1 as n"}`},
		{"db_export", `{"sql":"select 1 as n","path":"n.csv"}`},
		{"db_import", `{"path":"a.csv","table":"log"}`},
		{"shell_run", `{"command":"ls"}`},
		{"todo", `{"markdown":"- [ ] look"}`},
		{"broken", `{}`},
		{"notify", `{"title":"it goes on"}`},
	} {
		calls = append(calls, model.Call{ID: "c-" + c.name, Name: c.name, Args: json.RawMessage(c.args)})
	}
	b := setup(t,
		modeltest.Turn{Calls: []model.Call{{ID: "away", Name: "move", Args: json.RawMessage(`{"away":true}`)}}},
		modeltest.Turn{Calls: calls},
		modeltest.Turn{Calls: []model.Call{{ID: "back", Name: "move", Args: json.RawMessage(`{"away":false}`)}}},
		modeltest.Turn{Calls: []model.Call{{ID: "again", Name: "file_read", Args: json.RawMessage(`{"path":"a.txt"}`)}}},
		modeltest.Turn{Text: "The folder was gone for a moment."})
	b.table()
	b.put("work/a.txt", "some text")
	work := b.plan.Agents["clerk"].Workdir
	move, err := tool.Define(tool.Spec{Name: "move", Description: "moves the workdir", Effect: domain.EffectRead, Class: tool.ClassOther, Access: tool.NoNeeds},
		func(_ context.Context, _ tool.Invocation, a struct {
			Away bool `json:"away"`
		}) (tool.Envelope, error) {
			from, to := work+"-away", work
			if a.Away {
				from, to = to, from
			}
			return tool.Success("moved"), os.Rename(from, to)
		})
	if err != nil {
		t.Fatal(err)
	}
	broken, err := tool.Define(tool.Spec{Name: "broken", Description: "needs the workdir", Effect: domain.EffectRead, Class: tool.ClassOther, Access: func(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) {
		_, err := os.Lstat(work)
		return tool.Access{}, err
	}}, func(context.Context, tool.Invocation, struct{}) (tool.Envelope, error) {
		return tool.Success("it is there"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.tools = []tool.Tool{move, broken}
	if b.runner, err = agent.New(agent.Options{Ledger: b.ledger, Databases: b.pool, Manifests: b.dir + "/manifests", Tools: b.tools}); err != nil {
		t.Fatal(err)
	}
	clerk := b.plan.Agents["clerk"]
	clerk.Commands = []shell.Grant{{Argv: []string{"ls"}}}
	b.plan.Agents["clerk"] = clerk

	id := b.adhoc("Do something with files.")
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%s: %s", res.Outcome, res.Error)
	}
	made, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(made) != len(calls)+3 {
		t.Fatalf("%d calls, %v", len(made), err)
	}
	for _, c := range made {
		var e tool.Envelope
		if err := json.Unmarshal(c.Envelope, &e); err != nil {
			t.Errorf("%s: %v", c.Tool, err)
		}
		needs := map[string]bool{"file_read": true, "file_write": true, "db_export": true, "shell_run": true, "broken": true}
		if needs[c.Tool] && c.ID != "again" && (e.OK || c.State != domain.CallFailed) {
			t.Errorf("%s: %s %s", c.Tool, c.State, c.Envelope)
		}
		if c.ID == "again" && !e.OK {
			t.Errorf("once it is back: %s", c.Envelope)
		}
	}
}
