package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/model/playbook"
	"rouse/agent/tool/shell"
	"rouse/agentdb/ledger"
)

// scriptJob is a job whose one call runs a script of its agent's folder, unapproved.
func scriptJob(t *testing.T, command string) (b *bench, write func(script string)) {
	t.Helper()
	confined(t)
	needShell(t)
	b = setup(t)
	plain := b.plan.Agents["plain"]
	plain.Commands = []shell.Grant{{Argv: []string{"true"}}}
	b.plan.Agents["plain"] = plain
	b.plan.Jobs["j"] = agent.Job{Name: "j", Agent: "plain", Playbook: []playbook.Call{{Name: "shell_run", With: map[string]any{"command": command}}}}

	return b, func(script string) {
		t.Helper()
		folder := filepath.Join(b.dir, "plain")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "job.sh"), []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// What the owner has approved is the content of the script: another one that was written before the call is
// asked about again, shown as it is, also when the answer came while no daemon ran.
func TestAnotherContentIsAskedAgain(t *testing.T) {
	t.Parallel()
	b, write := scriptJob(t, "sh job.sh")
	write("echo one >> made.txt\n")
	id := b.enqueue(ledger.Request{Job: "j", Agent: "plain"})
	b.ends(id)
	if item := b.open(); !strings.Contains(item.Action.Description, "job.sh holds") || !strings.Contains(item.Action.Description, "\n    echo one >> made.txt") {
		t.Errorf("the owner is shown %q", item.Action.Description)
	}

	b.reopen(time.Minute)
	b.say(ledger.ApprovalOnce)
	write("echo two >> made.txt\n")
	if res := b.ends(id); res.Wait == nil || b.text("plain", "made.txt") != "" {
		t.Fatalf("%+v, it made %q", res, b.text("plain", "made.txt"))
	}
	if item := b.open(); !strings.Contains(item.Action.Description, "\n    echo two >> made.txt") {
		t.Errorf("the owner is shown %q", item.Action.Description)
	}

	b.say(ledger.ApprovalOnce)
	if res := b.ends(id); res.Wait != nil || b.text("plain", "made.txt") != "two\n" {
		t.Errorf("%+v, it made %q", res, b.text("plain", "made.txt"))
	}
}

// A standing approval covers the content that was approved, and no other.
func TestAlwaysIsForOneContent(t *testing.T) {
	t.Parallel()
	b, write := scriptJob(t, "sh job.sh; true")
	write("echo one >> made.txt\n")
	start := func() ledger.Result { return b.ends(b.enqueue(ledger.Request{Job: "j", Agent: "plain"})) }
	id := b.enqueue(ledger.Request{Job: "j", Agent: "plain"})
	b.ends(id)
	b.say(ledger.ApprovalAlways)
	b.ends(id)
	if res := start(); res.Wait != nil || b.text("plain", "made.txt") != "one\none\n" {
		t.Fatalf("%+v, it made %q", res, b.text("plain", "made.txt"))
	}

	write("echo two >> made.txt\n")
	if res := start(); res.Wait == nil || b.text("plain", "made.txt") != "one\none\n" {
		t.Errorf("%+v, it made %q", res, b.text("plain", "made.txt"))
	}
	write("echo one >> made.txt\n")
	if res := start(); res.Wait != nil || b.text("plain", "made.txt") != "one\none\none\n" {
		t.Errorf("%+v, it made %q", res, b.text("plain", "made.txt"))
	}
}

// What was a secret stays one: after it was replaced by another, the old value is blacked out as well.
func TestReplacedSecretsStaySecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, secrets := range [][]string{{"old-value-1234"}, {"new-value-5678"}, nil} {
		b.plan.Secrets = secrets
		b.runner.Set(b.plan)
	}
	if got := b.runner.Redact("old-value-1234 new-value-5678"); got != "[secret] [secret]" {
		t.Errorf("%q", got)
	}
}
