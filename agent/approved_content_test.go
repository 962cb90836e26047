package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool/shell"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// scriptJob returns a job with one call, which runs a script in the agent's folder without
// approval.
func scriptJob(t *testing.T, command string) (b *bench, write func(script string)) {
	t.Helper()
	confined(t)
	needShell(t)
	b = setup(t)
	plain := b.plan.Agents["plain"]
	plain.Commands = []shell.Grant{{Argv: []string{"true"}}}
	b.plan.Agents["plain"] = plain
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "plain", Playbook: []playbook.Call{{Name: "shell_run", With: map[string]any{"command": command}}}}

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

// TestAnotherContentIsAskedAgain checks that an approval covers the content of a script. If the
// content changes before the call, the owner is asked again and sees the new content, even if the
// answer came while no daemon ran.
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
	b.say(inbox.ApprovalOnce)
	write("echo two >> made.txt\n")
	if res := b.ends(id); res.Wait == nil || b.text("plain", "made.txt") != "" {
		t.Fatalf("%+v, it made %q", res, b.text("plain", "made.txt"))
	}
	if item := b.open(); !strings.Contains(item.Action.Description, "\n    echo two >> made.txt") {
		t.Errorf("the owner is shown %q", item.Action.Description)
	}

	b.say(inbox.ApprovalOnce)
	if res := b.ends(id); res.Wait != nil || b.text("plain", "made.txt") != "two\n" {
		t.Errorf("%+v, it made %q", res, b.text("plain", "made.txt"))
	}
}

// TestAlwaysIsForOneContent checks that a standing approval covers only the approved content.
func TestAlwaysIsForOneContent(t *testing.T) {
	t.Parallel()
	b, write := scriptJob(t, "sh job.sh; true")
	write("echo one >> made.txt\n")
	start := func() ledger.Result { return b.ends(b.enqueue(ledger.Request{Job: "j", Agent: "plain"})) }
	id := b.enqueue(ledger.Request{Job: "j", Agent: "plain"})
	b.ends(id)
	b.say(inbox.ApprovalAlways)
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

// TestApprovalShowsReadableText checks that an approval shows the text of a PDF or an HTML page,
// the type of another binary file, and an executable file unchanged.
func TestApprovalShowsReadableText(t *testing.T) {
	t.Parallel()
	confined(t)
	needShell(t)
	pdf := pdfOf("Pay 40 EUR by Friday")
	for name, c := range map[string]struct {
		content string
		shown   []string
		hidden  string
	}{
		"bill.pdf":   {pdf, []string{"bill.pdf holds ", "a PDF document of 1 page, with this text:", "\n    Pay 40 EUR by Friday"}, "endobj"},
		"broken.pdf": {"%PDF-1.4\nnothing of it", []string{"a PDF document that cannot be read"}, "nothing of it"},
		"page.html":  {"<html><script>alert(1)</script><p>Open ten to four</p></html>", []string{"an HTML page, with this text:", "Open ten to four"}, "<p>"},
		"photo.png":  {"\x89PNG\r\n\x1a\n\x00\x00", []string{"binary data of type image/png"}, "IHDR"},
		"notes.txt":  {"Call <b>Ann</b>\n", []string{"notes.txt holds ", "\n    Call <b>Ann</b>"}, "with this text"},
	} {
		b := setup(t)
		b.put("plain/"+name, c.content)
		plain := b.plan.Agents["plain"]
		plain.Commands = []shell.Grant{{Argv: []string{"true"}}}
		b.plan.Agents["plain"] = plain
		b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "plain", Playbook: []playbook.Call{{Name: "shell_run", With: map[string]any{"command": "cat " + name}}}}
		b.ends(b.enqueue(ledger.Request{Job: "j", Agent: "plain"}))
		shown := b.open().Action.Description
		for _, want := range c.shown {
			if !strings.Contains(shown, want) {
				t.Errorf("%s: %q is missing in %q", name, want, shown)
			}
		}
		if strings.Contains(shown, c.hidden) {
			t.Errorf("%s: the owner is shown %q", name, shown)
		}
	}

	// A script is shown unchanged, even with the file name extension of another type.
	b := setup(t)
	b.put("plain/job.html", "echo '<p>paid</p>'\n")
	plain := b.plan.Agents["plain"]
	plain.Commands = []shell.Grant{{Argv: []string{"true"}}}
	b.plan.Agents["plain"] = plain
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "plain", Playbook: []playbook.Call{{Name: "shell_run", With: map[string]any{"command": "sh job.html"}}}}
	b.ends(b.enqueue(ledger.Request{Job: "j", Agent: "plain"}))
	if shown := b.open().Action.Description; !strings.Contains(shown, "\n    echo '<p>paid</p>'") {
		t.Errorf("the owner is shown %q", shown)
	}
}

// pdfOf returns a PDF document of one page with a line of text.
func pdfOf(line string) string {
	page := "BT /F1 24 Tf 72 700 Td (" + line + ") Tj ET"
	out, offsets := "%PDF-1.4\n", []int(nil)
	for i, object := range []string{
		"<< /Type /Catalog /Pages 2 0 R >>",
		"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
		fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(page), page),
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
	} {
		offsets = append(offsets, len(out))
		out += fmt.Sprintf("%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	start := len(out)
	out += fmt.Sprintf("xref\n0 %d\n0000000000 65535 f \n", len(offsets)+1)
	for _, at := range offsets {
		out += fmt.Sprintf("%010d 00000 n \n", at)
	}
	return out + fmt.Sprintf("trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(offsets)+1, start)
}

// TestReplacedSecretsStaySecret checks that the old value of a replaced secret is still redacted.
func TestReplacedSecretsStaySecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, secrets := range [][]string{{"old-value-1234"}, {"new-value-5678"}, nil} {
		b.plan.Secrets = secrets
		b.runner.Set(b.plan)
	}
	if got := b.runner.Plan.Redact("old-value-1234 new-value-5678"); got != "[secret] [secret]" {
		t.Errorf("%q", got)
	}
}
