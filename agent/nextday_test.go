package agent_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// TestApprovedOnTheNextDay checks that a command without a grant can wait overnight without using
// resources. On the next day it runs once, exactly as it was shown, even if the run is retried
// later.
func TestApprovedOnTheNextDay(t *testing.T) {
	t.Parallel()
	confined(t)
	needShell(t)
	const command = "echo \"$PWD\" >> made.txt; printf 'a  b\\n' >> made.txt"
	b := setup(t)
	plain := b.plan.Agents["plain"]
	plain.Commands = []shell.Grant{{Argv: []string{"true"}}}
	b.plan.Agents["plain"] = plain
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "plain", Playbook: []playbook.Call{{Name: "shell_run", With: map[string]any{"command": command}}}}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "plain"})
	finish := func() ledger.Result {
		t.Helper()
		res := b.run(id)
		run, err := b.ledger.Runs.Get(t.Context(), id)
		if err == nil {
			err = b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: run.Attempt}, res)
		}
		if err != nil {
			t.Fatal(err)
		}

		return res
	}
	if res := finish(); res.Wait == nil {
		t.Fatalf("it does not wait: %+v", res)
	}

	item := b.open()
	if !strings.HasPrefix(item.Action.Description, command+"\n(a script for bash; in "+filepath.Join(b.dir, "plain")+"; network: none; tier ") {
		t.Errorf("the owner is shown %q", item.Action.Description)
	}

	b.reopen(24 * time.Hour)
	if text := b.text("plain", "made.txt"); text != "" {
		t.Errorf("it ran before the answer: %q", text)
	}

	b.say(inbox.ApprovalOnce)
	want := filepath.Join(b.dir, "plain") + "\na  b\n"
	if res, text := finish(), b.text("plain", "made.txt"); res.Outcome != domain.OutcomeSuccess || text != want {
		t.Errorf("%+v, it made %q, want %q", res, text, want)
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 1 || !strings.Contains(string(calls[0].Envelope), `"exit_code":0`) {
		t.Fatalf("calls: %+v %v", calls, err)
	}
	if used, err := b.ledger.Inbox.Get(t.Context(), item.ID); err != nil || used.Used != calls[0].Key || used.ClosedAt.Sub(used.CreatedAt) < 24*time.Hour {
		t.Errorf("item: %+v %v", used, err)
	}

	// The approval is used up. The same command of a later run waits again, and three days later it
	// can no longer be approved.
	id = b.enqueue(ledger.Request{Job: "j", Agent: "plain"})
	if res := finish(); res.Wait == nil || b.text("plain", "made.txt") != want {
		t.Errorf("%+v, it made %q", res, b.text("plain", "made.txt"))
	}

	b.reopen(24*time.Hour + inbox.ApprovalExpires)
	if late := b.open(); time.Now().Add(24*time.Hour + inbox.ApprovalExpires).Before(late.ExpiresAt) {
		t.Errorf("it may be allowed until %s", late.ExpiresAt)
	}
}

// reopen simulates a new process on the same ledger at a later time.
func (b *bench) reopen(later time.Duration) {
	b.t.Helper()
	err := b.ledger.Close()
	if err == nil {
		b.ledger, err = ledger.Open(b.t.Context(), ledger.Options{Path: filepath.Join(b.dir, "ledger.db"), Now: func() time.Time { return time.Now().Add(later) }})
	}
	if err != nil {
		b.t.Fatal(err)
	}

	b.t.Cleanup(func() { b.ledger.Close() })
	b.newPool()
}
