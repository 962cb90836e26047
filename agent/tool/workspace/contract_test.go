package workspace_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"rouse/agent/tool"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/workspace"
)

// result makes a call that must succeed and returns its result.
func (b *bench) result(name string, args map[string]any) map[string]any {
	b.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		b.Fatal(err)
	}

	e := b.call(name, string(raw))
	if !e.OK {
		b.Fatalf("%s: %s %s", raw, e.Kind, e.Message)
	}
	got := map[string]any{}
	if err := json.Unmarshal(e.Result, &got); err != nil {
		b.Fatal(err)
	}
	return got
}

// TestWorkspaceActions: OSL-23, OSL-25, OSL-27, each action in turn, and versions and locks.
func TestWorkspaceActions(t *testing.T) {
	row, artifact, lock := contract.Of(t, "OSL-23"), contract.Of(t, "OSL-25"), contract.Of(t, "OSL-27")
	b := newBench(t, open(t), "ann", "trips")
	name := row.Quote("workspace_manage")
	more := map[string]map[string]any{
		"create": {"name": "rome"}, "update": {"state": map[string]any{"n": 1}}, "set_phase": {"phase": "p"}, "set_role": {"role": "r"},
		"create_artifact": {"title": "Plan", "content": "One", "type": "note"}, "update_artifact": {"artifactId": "1", "content": "Two"},
	}
	for _, action := range row.Between(row.Quote("action")+"`:", ". Without") {
		args := map[string]any{"action": action}
		for k, v := range more[action] {
			args[k] = v
		}

		got := b.result(name, args)
		switch action {
		case "create_artifact":
			if got[artifact.Quote("id")] != "1" || got[artifact.Quote("title")] != "Plan" || got[artifact.Quote("type")] != "note" ||
				got[artifact.Quote("status")] != artifact.Quote("draft") || got[artifact.Quote("version")] != 1.0 {
				t.Errorf("%s: %v", action, got)
			}
		case "update_artifact":
			if got["version"] != 2.0 || got[artifact.Quote("parent")] != "1" {
				t.Errorf("%s: %v", action, got)
			}
			got = b.result(name, map[string]any{"action": action, "artifactId": "2", "status": artifact.Quote("pending_approval")})
			if got["status"] != "pending_approval" {
				t.Errorf("%s: %v", action, got)
			}
		case "list_artifacts":
			if latest := got["artifacts"].([]any); len(latest) != 1 || latest[0].(map[string]any)["id"] != "2" {
				t.Errorf("%s: %v", action, got)
			}
		}
	}

	all, err := b.l.Workspaces.Artifacts(t.Context(), 1, true)
	if err != nil || len(all) != 2 || all[0].Status != artifact.Quote("superseded") {
		t.Errorf("%+v, %v", all, err)
	}

	b.result(name, map[string]any{"action": "create", "name": "oslo"}) // the run works in rome
	for id, want := range map[string]string{"": "rome", "2": "oslo"} {
		if got := b.result(name, map[string]any{"action": "get", row.Quote("workspaceId"): id}); got["name"] != want {
			t.Errorf("workspace %q is %v", id, got["name"])
		}
	}

	version := b.result(name, map[string]any{"action": "get", "workspaceId": "2"})[lock.Quote("lock_version")].(float64)
	write := func(v float64) tool.Envelope {
		return b.call(name, fmt.Sprintf(`{"action":"update","workspaceId":"2","phase":"p%v",%q:%v}`, v, lock.Quote("lockVersion"), v))
	}
	if e := write(version); !e.OK {
		t.Errorf("%+v", e)
	}
	if e := write(version); e.OK || string(e.Kind) != lock.Quote("conflict") {
		t.Errorf("a stale write: %+v", e)
	}
	if got := b.result(name, map[string]any{"action": "get", "workspaceId": "2"}); got["lock_version"] != version+1 {
		t.Errorf("%v", got)
	}
}

// TestRunActions: OSL-24, each action on a run for which it is meant.
func TestRunActions(t *testing.T) {
	row := contract.Of(t, "OSL-24")
	b := newBench(t, open(t), "ann", "trips")
	w, err := b.l.Workspaces.Create(t.Context(), workspace.Author{}, workspace.Workspace{Agent: "ann", Skill: "trips", Name: "rome"})
	if err != nil {
		t.Fatal(err)
	}

	// ended starts a run in the workspace, changes it, and ends the run.
	ended := func(res ledger.Result) ledger.Attempt {
		t.Helper()
		a := b.attempt("ann")
		if _, err := b.l.Workspaces.Enter(t.Context(), a, w.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := b.l.Workspaces.Change(t.Context(), workspace.Author{Attempt: a, Key: "k"}, w.ID, workspace.Change{State: json.RawMessage(`{"half":true}`)}); err != nil {
			t.Fatal(err)
		}
		if err := b.l.Finish(t.Context(), a, res); err != nil {
			t.Fatal(err)
		}
		return a
	}

	name := row.Quote("run_manage")
	asking := ended(ledger.Result{Wait: &inbox.Question{Message: "Which?", Expires: time.Hour}})
	item := b.result(name, map[string]any{"action": "get", "runId": fmt.Sprint(asking.Run)})["waits_for_answers"].([]any)[0].(map[string]any)["item"]
	var failed ledger.Attempt
	for _, action := range row.Between(row.Quote("action")+"`:", ".") {
		switch action {
		case "retry":
			failed = ended(ledger.Result{Outcome: domain.OutcomeError})
			b.result(name, map[string]any{"action": "acknowledge", "runId": fmt.Sprint(failed.Run)})
		case "acknowledge", "discard":
			failed = ended(ledger.Result{Outcome: domain.OutcomeError})
		}

		run := failed.Run
		if run == 0 {
			run = asking.Run
		}
		b.result(name, map[string]any{"action": action, "runId": fmt.Sprint(run), "item": item, "answer": "This one"})
	}
}
