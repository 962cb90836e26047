package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// newApprovalItems creates one run for each action that waits for its approval. It also creates a
// run that waits for the approval of its job's definition, which has no tool.
func newApprovalItems(t *testing.T, home string, actions ...inbox.Action) {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(home, "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	for _, action := range actions {
		out, err := l.Enqueue(t.Context(), ledger.Request{Job: "mail", Agent: "clerk", Trigger: domain.TriggerManual})
		if err != nil {
			t.Fatal(err)
		}

		_, a, err := l.StartAttempt(t.Context(), out[0].Run)
		if err == nil {
			err = l.Finish(t.Context(), a, ledger.Result{Wait: &inbox.Question{Kind: inbox.KindApproval, Call: "p1", Title: "mail asks for " + action.Tool, Message: "It waits for your approval: no grant covers it.",
				Options: []string{inbox.ApprovalOnce, inbox.ApprovalAlways, inbox.ApprovalDeny}, Expires: inbox.ApprovalExpires, Action: action}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestApprovals checks approvals (UNI-06, UNI-09). An action is shown as it would be executed, even
// if it contains hidden characters. One item stands for all runs that wait for the same action. It
// is answered once, with or without a daemon. A standing approval can be revoked.
func TestApprovals(t *testing.T) {
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: clerk}]
jobs: [{name: mail, agent: clerk, playbook: [{call: db_schema}]}]
`}), "rouse.yaml")

	say := func(args ...string) (out string, ok bool) {
		p := endtoend.Rouse(t, append(args, "--config", config)...)
		err := p.Run()
		return p.Out.String() + p.Err.String(), err == nil
	}

	say("runs")
	hidden := "rm -rf \x1b[2K\u202e /tmp/x\nsecond \x00\u200bline"
	newApprovalItems(t, filepath.Join(filepath.Dir(config), "home"),
		inbox.Action{Tool: "shell_run", Description: hidden, Hash: "h1"}, inbox.Action{Tool: "shell_run", Description: hidden, Hash: "h1"},
		inbox.Action{Tool: "send", Description: "to bob", Hash: "h2"}, inbox.Action{Tool: "send", Description: "to eve", Hash: "h3"})
	var items []api.Item
	endtoend.RunJSON(t, &items, "inbox", "--json", "--config", config)
	if len(items) != 3 || strings.Join(items[0].Runs, " ") != "1 2" || items[0].Action != hidden || items[0].Tool != "shell_run" || items[0].Hash != "h1" || items[0].Kind != "approval" {
		t.Fatalf("inbox: %+v", items)
	}

	out, _ := say("inbox")
	for _, want := range []string{"run 1 and 1 more wait for the same, ", "\n    | rm -rf \\x1b[2K\\u202e /tmp/x\n    | second \\x00\\u200bline\n", "\n    rouse approve 1 [--always] [--all], or rouse deny 1 [REASON]\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the inbox does not say %q:\n%s", want, out)
		}
	}

	for _, c := range []struct {
		args []string
		says string
		ok   bool
	}{
		{[]string{"approve", "9"}, "inbox item 9 is not in the ledger", false}, {[]string{"approve", "x"}, "is not an item", false},
		{[]string{"answer", "1", "maybe"}, `"maybe" is no answer to this; the answers are 1. approve`, false},
		{[]string{"show", "1"}, "| rm -rf \\x1b", true}, {[]string{"why", "mail"}, "waits for your approval until", true}, {[]string{"runs"}, "? waiting: approval", true},
		{[]string{"approve", "1", "--always"}, "run 1 and 1 more go on when a daemon starts", true},
		{[]string{"approve", "2"}, "is not open any more", false}, {[]string{"deny", "1"}, `it was answered "always"`, false},
		{[]string{"deny", "3", "he", "has moved"}, "run 3 goes on", true}, {[]string{"show", "3"}, "answered: deny: he has moved", true},
		{[]string{"grants"}, "1  clerk: shell_run (since ", true}, {[]string{"grants"}, "| rm -rf \\x1b", true}, {[]string{"grants", "--json"}, `"item": "1"`, true},
		{[]string{"grants", "revoke", "7"}, "grant 7 is not in the ledger", false}, {[]string{"grants", "revoke", "1"}, "grant 1 of clerk is revoked", true},
		{[]string{"grants"}, "there are no standing approvals", true}, {[]string{"grants", "trust", "clerk"}, "nothing that agent clerk keeps is untrusted", false},
	} {
		if out, ok := say(c.args...); ok != c.ok || !strings.Contains(out, c.says) {
			t.Errorf("rouse %s: %v\n%s\nwant %s", strings.Join(c.args, " "), ok, out, c.says)
		}
	}

	endtoend.Serve(t, config)
	if out, ok := say("approve", "4"); !ok || !strings.Contains(out, "run 4 goes on\n") {
		t.Errorf("approve 4: %s", out)
	}

	for _, run := range []string{"1", "2", "3", "4"} {
		var d api.RunDetail
		cmdtest.Until(t, "the end of run "+run, func() bool {
			endtoend.RunJSON(t, &d, "show", run, "--json", "--config", config)
			return d.State == "finished"
		})
		if d.Outcome != "success" || len(d.Attempts) != 2 {
			t.Errorf("run %s: %+v", run, d.Run)
		}
	}
}

// TestApproveOneOfMany approves an action for which scheduled runs and a manual run wait. Without
// --all one run continues, with --all all others do.
func TestApproveOneOfMany(t *testing.T) {
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: clerk}]
jobs: [{name: mail, agent: clerk, schedule: "0 8 * * *", playbook: [{call: db_schema}]}]
`})
	config, home := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "home")
	say := func(args ...string) string {
		t.Helper()
		p := endtoend.Rouse(t, append(args, "--config", config)...)
		if err := p.Run(); err != nil {
			t.Errorf("rouse %s: %v", strings.Join(args, " "), err)
		}
		return p.Out.String() + p.Err.String()
	}
	say("runs") // creates the home

	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(home, "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-3 * time.Hour).UTC().Truncate(time.Second)
	var due []ledger.Due
	for n := range 3 {
		at := at.Add(time.Duration(n) * time.Minute)
		due = append(due, ledger.Due{Job: "mail", Agent: "clerk", Source: "cron", Nominal: at, Actual: at, Decision: domain.DecisionRun, Overlap: domain.OverlapAllow})
	}
	recorded, err := l.RecordDue(t.Context(), at, due, nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(run int64) {
		t.Helper()
		_, a, err := l.StartAttempt(t.Context(), run)
		if err == nil {
			err = l.Finish(t.Context(), a, ledger.Result{Wait: &inbox.Question{Kind: inbox.KindApproval, Call: "p1", Title: "mail asks", Message: "no grant covers it", Options: []string{inbox.ApprovalOnce, inbox.ApprovalDeny},
				Expires: inbox.ApprovalExpires, Action: inbox.Action{Tool: "send", Description: "to bob", Hash: "h1"}}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range recorded {
		ask(o.Run)
	}
	for range 2 {
		byHand, err := l.Enqueue(t.Context(), ledger.Request{Job: "mail", Agent: "clerk", Trigger: domain.TriggerManual})
		if err != nil {
			t.Fatal(err)
		}
		ask(byHand[0].Run)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ args, says string }{
		{"inbox", "run 1 and 4 more wait for the same, "}, {"inbox", "rouse approve 1 [--all], or"},
		{"approve 1", "run 1 goes on when a daemon starts: rouse serve; 2 runs that asked the same ended as skipped; 2 runs still ask the same: rouse inbox\n"},
		{"show 2", "overlap: run 1, which asked the same, got the answer; --all releases every waiting run"},
		{"why mail", "overlap: run 1, which asked the same, got the answer"},
		{"inbox", "run 4 and 1 more wait for the same, "},
		{"approve 4 --all", "run 4 and 1 more go on when a daemon starts: rouse serve\n"},
		{"inbox", "nothing waits for you"},
	} {
		if out := say(strings.Fields(c.args)...); !strings.Contains(out, c.says) {
			t.Errorf("rouse %s:\n%s\nwant %s", c.args, out, c.says)
		}
	}
}

// TestApprovedCommand checks a command without a grant. After the owner's approval it is executed
// once, as shown, by a later daemon than the one that asked.
func TestApprovedCommand(t *testing.T) {
	dir := cmdtest.Write(t, map[string]string{"work/.keep": "", "rouse.yaml": `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work, tools: {allow: [shell_run]}}]
jobs: [{name: make, agent: clerk, playbook: [{call: shell_run, with: {command: "mkdir made"}}]}]
`})

	config := filepath.Join(dir, "rouse.yaml")
	p := endtoend.Serve(t, config)
	asking := endtoend.Rouse(t, "run", "make", "--wait", "--config", config)
	if err := asking.Run(); err == nil || strings.Contains(asking.Out.String(), "tier") {
		t.Skipf("commands are not confined well enough here: %v %s", err, asking.Out.String())
	}

	p.Stop(t)
	var items []api.Item
	endtoend.RunJSON(t, &items, "inbox", "--json", "--config", config)
	if len(items) != 1 || !strings.HasPrefix(items[0].Action, "mkdir made\n") || items[0].Tool != "shell_run" {
		t.Fatalf("inbox: %+v", items)
	}
	if found, err := filepath.Glob(filepath.Join(dir, "work", "made")); err != nil || len(found) != 0 {
		t.Fatalf("made before the answer: %v %v", found, err)
	}

	endtoend.RunJSON(t, nil, "approve", items[0].ID, "--json", "--config", config)
	endtoend.Serve(t, config)
	var d api.RunDetail
	cmdtest.Until(t, "the end of the run", func() bool {
		endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config)
		return d.State == "finished"
	})
	if d.Outcome != "success" || d.Tier == "" { // a second execution of mkdir would have failed
		t.Errorf("%+v", d.Run)
	}
	if found, err := filepath.Glob(filepath.Join(dir, "work", "made")); err != nil || len(found) != 1 {
		t.Errorf("made: %v %v", found, err)
	}
}
