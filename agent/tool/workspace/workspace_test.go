package workspace_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/tool"
	workspacetool "rouse/agent/tool/workspace"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/workspace"
)

// bench is a run of an agent with the tools.
type bench struct {
	*testing.T
	l         *ledger.Ledger
	registry  *tool.Registry
	run       tool.Invocation // without a key, because each call gets its own
	calls     int
	cancelled []int64
}

func open(t *testing.T) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// newBench starts a run of an agent whose skills have workspaces.
func newBench(t *testing.T, l *ledger.Ledger, agent string, skills ...string) *bench {
	t.Helper()
	b := &bench{T: t, l: l}
	tools, err := workspacetool.Tools(workspacetool.Options{
		Ledger: l, Skills: skills, Redact: func(s string) string { return strings.ReplaceAll(s, "canary", "[secret]") },
		Cancelled: func(_ context.Context, r ledger.Run) { b.cancelled = append(b.cancelled, r.ID) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if b.registry, err = tool.NewRegistry(tools...); err != nil {
		t.Fatal(err)
	}

	a := b.attempt(agent)
	b.run = tool.Invocation{Run: a.Run, Attempt: a.Number, Agent: agent}
	return b
}

// attempt starts another run of an agent.
func (b *bench) attempt(agent string) ledger.Attempt {
	b.Helper()
	accepted, err := b.l.Enqueue(b.Context(), ledger.Request{Agent: agent, Job: "j", Trigger: domain.TriggerManual})
	if err != nil {
		b.Fatal(err)
	}
	_, a, err := b.l.StartAttempt(b.Context(), accepted[0].Run)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

// call makes a call twice, as after a crash between its effect and its record. It fails the test if
// the results differ.
func (b *bench) call(name, args string) tool.Envelope {
	b.Helper()
	b.calls++
	in := b.run
	in.Key = fmt.Sprintf("c%d", b.calls)

	var answers [2]tool.Envelope
	for i := range answers {
		e, err := b.registry.Call(b.Context(), in, name, json.RawMessage(args))
		if err != nil {
			b.Fatal(err)
		}
		answers[i] = e
	}

	if string(answers[0].Result) != string(answers[1].Result) || answers[0].Message != answers[1].Message {
		b.Errorf("%s: first %s%s, again %s%s", args, answers[0].Result, answers[0].Message, answers[1].Result, answers[1].Message)
	}
	return answers[0]
}

// says makes a call whose result must contain a text.
func (b *bench) says(name, args, want string) {
	b.Helper()
	if e := b.call(name, args); !strings.Contains(string(e.Result)+string(e.Kind)+" "+e.Message, want) {
		b.Errorf("%s: %s%s %s, want %s", args, e.Result, e.Kind, e.Message, want)
	}
}

// TestWorkspaceManage checks that an agent manages only its own workspaces, of its own skills, and
// that each call writes once (OSL-23).
func TestWorkspaceManage(t *testing.T) {
	t.Parallel()
	l := open(t)
	b := newBench(t, l, "ann", "trips")
	manage := func(args, want string) { t.Helper(); b.says("workspace_manage", args, want) }

	manage(`{"action":"get"}`, "works in no workspace yet")
	manage(`{"action":"create","skill":"notes","name":"x"}`, "say for which skill: trips")
	manage(`{"action":"create","name":"rome","state":{"key":"canary","n":12345678901234567}}`, `"lock_version":1`)
	manage(`{"action":"get"}`, `{"key":"[secret]","n":12345678901234567}`) // the run works in it now
	manage(`{"action":"update","phase":"draft","lockVersion":1}`, `"lock_version":2`)
	manage(`{"action":"update","phase":"late","lockVersion":1}`, "lock version 2 by now")
	manage(`{"action":"update"}`, "nothing was given")
	manage(`{"action":"set_phase","phase":""}`, `"lock_version":3`)
	manage(`{"action":"set_role","role":"writer"}`, `"role":"writer"`)
	manage(`{"action":"create_artifact","title":"Plan","content":"One"}`, `"status":"draft"`)
	manage(`{"action":"update_artifact","artifactId":"1","content":"Two","status":"pending_approval"}`, `"version":2`)
	manage(`{"action":"update_artifact","artifactId":"1","content":"Three"}`, "superseded by artifact 2")
	manage(`{"action":"update_artifact","artifactId":"2","status":"approved"}`, `"status":"approved"`)
	manage(`{"action":"list_artifacts"}`, `{"artifacts":[{"id":"2","title":"Plan","status":"approved","version":2`)
	manage(`{"action":"pause"}`, `"paused"`)
	manage(`{"action":"set_phase","phase":"x"}`, "is paused")
	manage(`{"action":"resume"}`, `"active"`)
	manage(`{"action":"list","status":"active"}`, `"name":"rome"`)

	// A workspace that the owner paused stays paused until the owner resumes it.
	for _, status := range []workspace.Status{workspace.Paused, workspace.Active} {
		if _, err := l.Workspaces.Change(t.Context(), workspace.Author{}, 1, workspace.Change{Status: status}); err != nil {
			t.Fatal(err)
		}
		if status == workspace.Paused {
			manage(`{"action":"resume"}`, "is paused; resume it with: rouse workspaces resume 1")
		}
	}
	manage(`{"action":"archive"}`, `"archived"`)

	other, elsewhere := newBench(t, l, "bob", "trips"), newBench(t, l, "ann", "notes")
	for _, stranger := range []*bench{other, elsewhere} {
		stranger.says("workspace_manage", `{"action":"list"}`, `"workspaces":[]`)
		stranger.says("workspace_manage", `{"action":"get","workspaceId":"1"}`, "no workspace 1 of your skills")
		stranger.says("workspace_manage", `{"action":"update","workspaceId":"1","state":{}}`, "no workspace 1 of your skills")
		stranger.says("run_manage", fmt.Sprintf(`{"action":"get","runId":"%d"}`, b.run.Run), "no workspace")
	}
}

// TestWorkspaceLabels checks that reading a workspace adds the labels that other runs have left
// there, by its name before it had a number.
func TestWorkspaceLabels(t *testing.T) {
	t.Parallel()
	b := newBench(t, open(t), "ann", "trips")
	rome := label.WorkspacePlace("ann", "trips", "rome")
	for args, want := range map[string]string{
		`{"action":"create","name":" rome "}`:           "reads [] writes [" + rome.Name + "]",
		`{"action":"get","workspaceId":"1"}`:            "reads [" + rome.Name + "] writes []",
		`{"action":"update","workspaceId":"1"}`:         "reads [" + rome.Name + "] writes [" + rome.Name + "]",
		`{"action":"list"}`:                             "reads [" + rome.Name + "] writes []",
		`{"action":"get","workspaceId":"9"}`:            "reads [] writes []",
		`{"action":"list_artifacts","workspaceId":"1"}`: "reads [" + rome.Name + "] writes []",
	} {
		if _, err := b.l.Workspaces.Named(t.Context(), "ann", "trips", "rome"); err != nil {
			b.call("workspace_manage", `{"action":"create","name":"rome"}`)
		}
		one, _ := b.registry.Lookup("workspace_manage")
		need, err := one.Access(t.Context(), b.run, json.RawMessage(args))
		if err != nil {
			t.Fatal(err)
		}

		names := func(places []label.Place) []string {
			out := []string{}
			for _, p := range places {
				out = append(out, p.Name)
			}
			return out
		}
		if got := fmt.Sprintf("reads %v writes %v", names(need.Reads), names(need.Writes)); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

// TestRunManage checks that an agent manages the runs in its workspaces. It answers questions to
// its owner only with an approval, and never answers approvals (OSL-24).
func TestRunManage(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := newBench(t, open(t), "ann", "trips")
	manage := func(args, want string) { t.Helper(); b.says("run_manage", args, want) }
	w, err := b.l.Workspaces.Create(ctx, workspace.Author{}, workspace.Workspace{Agent: "ann", Skill: "trips", Name: "rome"})
	if err != nil {
		t.Fatal(err)
	}

	// enter starts a run that works in the workspace.
	enter := func() ledger.Attempt {
		t.Helper()
		a := b.attempt("ann")
		if _, err := b.l.Workspaces.Enter(ctx, a, w.ID); err != nil {
			t.Fatal(err)
		}
		return a
	}
	finish := func(a ledger.Attempt, res ledger.Result) {
		t.Helper()
		if err := b.l.Finish(ctx, a, res); err != nil {
			t.Fatal(err)
		}
	}

	asking := enter()
	if _, err := b.l.Workspaces.AddCheckpoint(ctx, workspace.Author{Attempt: asking, Key: "k"}, workspace.Checkpoint{Workspace: w.ID, Step: "two"}); err != nil {
		t.Fatal(err)
	}
	finish(asking, ledger.Result{Wait: &inbox.Question{Title: "j asks", Message: "Which?", Expires: time.Hour}})
	manage(fmt.Sprintf(`{"action":"get","runId":"%d"}`, asking.Run), `"step":"two","waits_for_answers":[{"item":"1","kind":"input","message":"Which?"}]`)
	manage(fmt.Sprintf(`{"action":"events","runId":"%d"}`, asking.Run), `"kind":"run.waiting"`)
	manage(`{"action":"answer","item":"1","answer":"This one"}`, `"waiting_for":"resume"`)

	held := enter()
	finish(held, ledger.Result{Wait: &inbox.Question{Kind: inbox.KindApproval, Message: "May I?", Options: []string{inbox.ApprovalOnce, inbox.ApprovalDeny}, Action: inbox.Action{Tool: "shell_run", Hash: "h"}, Expires: time.Hour}})
	manage(`{"action":"answer","item":"2","answer":"approve"}`, "your owner's alone")
	signing := enter()
	finish(signing, ledger.Result{Wait: &inbox.Question{Message: "Sign in.", Action: inbox.Action{Tool: "host_oauth_authorize", Hash: "s"}, Expires: time.Hour}})
	manage(`{"action":"answer","item":"3","answer":"a-code"}`, "your owner's alone")
	manage(fmt.Sprintf(`{"action":"cancel","runId":"%d"}`, signing.Run), `"outcome":"cancelled"`)
	b.cancelled = nil
	manage(fmt.Sprintf(`{"action":"cancel","runId":"%d"}`, held.Run), `"outcome":"cancelled"`)
	if len(b.cancelled) != 1 || b.cancelled[0] != held.Run {
		t.Errorf("cancelled: %v", b.cancelled)
	}

	failed := enter()
	if _, err := b.l.Workspaces.Change(ctx, workspace.Author{Attempt: failed, Key: "k"}, w.ID, workspace.Change{State: json.RawMessage(`{"half":true}`)}); err != nil {
		t.Fatal(err)
	}
	finish(failed, ledger.Result{Outcome: domain.OutcomeError})
	manage(fmt.Sprintf(`{"action":"retry","runId":"%d"}`, failed.Run), "half changed")
	manage(fmt.Sprintf(`{"action":"acknowledge","runId":"%d"}`, failed.Run), `"status":"active"`)
	manage(fmt.Sprintf(`{"action":"retry","runId":"%d"}`, failed.Run), `"state":"queued"`)
	manage(fmt.Sprintf(`{"action":"pause","runId":"%d"}`, failed.Run), `"state":"queued"`)
	if _, err := b.l.Workspaces.Enter(ctx, b.attempt("ann"), w.ID); err == nil {
		t.Error("a run works in a workspace that was paused")
	}
	manage(fmt.Sprintf(`{"action":"continue","runId":"%d"}`, failed.Run), `"state":"queued"`)
	manage(`{"action":"list"}`, fmt.Sprintf(`{"runs":[{"id":"%d"`, failed.Run))
	manage(`{"action":"get"}`, "say which run")
	manage(fmt.Sprintf(`{"action":"cancel","runId":"%d"}`, b.run.Run), "works in no workspace of yours")

	one, _ := b.registry.Lookup("run_manage")
	for action, asks := range map[string]bool{"list": false, "cancel": false, "retry": false, "answer": true, "acknowledge": true, "discard": true} {
		need, err := one.Access(ctx, b.run, json.RawMessage(fmt.Sprintf(`{"action":%q,"item":"1","answer":"yes"}`, action)))
		if err != nil || need.NeedsApproval != asks || need.NoStandingApproval != asks || need.Refused != nil {
			t.Errorf("%s: %+v %v", action, need, err)
		}
	}
}
