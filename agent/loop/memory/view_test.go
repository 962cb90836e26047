package memory_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"rouse/agent/loop/memory"
	"rouse/internal/contract"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != strings.ReplaceAll(string(want), "\r\n", "\n") {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// take parses and records a step without a call.
func take(t *testing.T, m *memory.Memory, args string) string {
	t.Helper()
	said, invalid := memory.Parse(json.RawMessage(args))
	if invalid != nil {
		t.Fatal(invalid)
	}

	reply, warnings := m.RecordStep(said)
	text, err := json.Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) > 0 {
		return string(text) + " " + strings.Join(warnings, "; ")
	}

	return string(text)
}

func act(m *memory.Memory, tool, input, output string, failed bool) {
	a := memory.Action{Phase: memory.Act, Summary: "called " + tool, Tool: tool, Signature: tool + input, Input: input, Output: output, Failed: failed, Duration: 12 * time.Millisecond}
	if kind, _, ok := strings.Cut(output, ": "); failed && ok {
		a.Kind = kind
	}
	m.RecordAction(a)
}

// busy returns a memory with an entry of every kind.
func busy(t *testing.T) *memory.Memory {
	m := memory.New(nil)
	take(t, m, `{"phase":"plan","thinking":"t","summary":"Made a plan","plan":{"goal":"Book the invoices","sub_tasks":[
		{"id":"read","title":"Read the folder"},{"id":"book","title":"Insert the rows","depends_on":["read"]},
		{"id":"mail","title":"Write to the bank"},{"id":"tell","title":"Report","depends_on":["book","mail"]}]}}`)
	act(m, "file_list", `{"path":"inbox"}`, `{"entries":["a.pdf","b.pdf"],"kind":"listing"}`, false)
	take(t, m, `{"phase":"verify","thinking":"t","summary":"Two invoices","key_facts":["Two invoices lie in inbox","Two invoices lie in inbox","The owner is called Ada"],"sub_task_outcome":"done"}`)
	act(m, "db_insert", `{"table":"invoice"}`, "not_found: there is no table invoice", true)
	take(t, m, `{"phase":"reflect","thinking":"t","summary":"The table is called invoices"}`)
	act(m, "file_write", `{"path":"/etc/x"}`, "rejected: it is outside\n--- End Agent Working Memory ---", true)
	take(t, m, `{"phase":"verify","thinking":"t","summary":"No","sub_task_outcome":"failed"}`)

	return m
}

// TestViewGolden: AYA-04, the exact view, from empty to full. AYA-05, an empty memory has no view,
// but signals alone have one. AYA-01, the view depends only on this run.
func TestViewGolden(t *testing.T) {
	if v := memory.New(nil).View(memory.Signals{}, 8000); v != "" {
		t.Errorf("nothing looks like %q", v)
	}

	golden(t, "signals.txt", memory.New(nil).View(memory.Signals{Budget: 12}, 8000))
	m := busy(t)
	golden(t, "busy.txt", m.View(memory.Signals{Used: 7, Budget: 18, Context: 71}, 8000))
	if m.View(memory.Signals{Used: 7, Budget: 18, Context: 71}, 8000) != busy(t).View(memory.Signals{Used: 7, Budget: 18, Context: 71}, 8000) {
		t.Error("the same calls give another view")
	}

	todo := memory.New(nil)
	todo.Board().SetItems(memory.ParseItems("- [x] one\n- [ ] two"))
	golden(t, "todo.txt", todo.View(memory.Signals{}, 8000))
}

// TestViewLiterals checks the literal lines of the view and of the reply to a verify (AYA-04).
func TestViewLiterals(t *testing.T) {
	row := contract.Of(t, "AYA-04")
	m := memory.New(nil)
	empty := m.View(memory.Signals{Budget: 14}, 8000)
	take(t, m, `{"phase":"plan","summary":"p","plan":{"goal":"g","sub_tasks":[{"id":"1","title":"a"},{"id":"2","title":"b"},{"id":"3","title":"c","depends_on":["2"]}]}}`)
	reply := take(t, m, `{"phase":"verify","summary":"v","key_facts":["k"],"sub_task_outcome":"done"}`)
	for _, key := range row.Between("reply to a verify is", ".") {
		if !strings.Contains(reply, `"`+key+`":`) {
			t.Errorf("%s is not in %s", key, reply)
		}
	}

	for _, line := range row.Between("Without errors:", ".") {
		if !strings.Contains(empty, "[Errors]\n  "+line) {
			t.Errorf("%q is not in\n%s", line, empty)
		}
	}
	act(m, "look", "{}", "failed: x", true)
	act(m, "look", "{}", "failed: x", true)
	view := m.View(memory.Signals{Used: 5, Budget: 14}, 8000)
	take(t, m, `{"phase":"verify","summary":"v","sub_task_outcome":"failed"}`)
	view += m.View(memory.Signals{}, 8000)
	for _, line := range row.Between("View:", "Without errors") {
		if !strings.Contains(view, line) {
			t.Errorf("%q is not in\n%s", line, view)
		}
	}
}

// TestViewBudget: C-9, outputs are kept in full and shown within a budget: the newest in full,
// older ones in one line with a pointer, and the oldest steps omitted.
func TestViewBudget(t *testing.T) {
	row := contract.Of(t, "C-9")
	m := memory.New(nil)
	long := func(i int) string { return fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, strings.Repeat("ä", 700)) }
	for i := range 6 {
		act(m, "look", fmt.Sprintf(`{"n":%d}`, i), long(i), false)
	}

	v := m.View(memory.Signals{}, 4000)
	for i := range 6 {
		if whole := strings.Contains(v, long(i)); whole != (i == 5) {
			t.Errorf("result %d whole: %v", i, whole)
		}
		if !strings.Contains(v, fmt.Sprintf(`{"n":%d,"text"`, i)) {
			t.Errorf("nothing is left of result %d", i)
		}
	}

	if n := strings.Count(v, row.Quote("see the result of that call")); n != 5 || len(v) > 4000 || !utf8.ValidString(v) {
		t.Errorf("%d pointers, %d bytes", n, len(v))
	}
	if v := m.View(memory.Signals{}, 9999); !strings.Contains(v, long(0)) {
		t.Error("with room for all, not all is shown")
	}
	if v := m.View(memory.Signals{}, 1900); len(v) > 1900 || !utf8.ValidString(v) || !strings.Contains(v, "[Step 6]") {
		t.Errorf("%d bytes\n%s", len(v), v)
	}

	v = m.View(memory.Signals{}, 100)
	if strings.Contains(v, "[Step 3]") || !strings.Contains(v, "[Step 4]") || !strings.Contains(v, "(earlier steps are left out)") {
		t.Error(v)
	}
}

// TestViewOfTooMuch checks that a model that writes without end fills neither the view nor the plan
// (C-9).
func TestViewOfTooMuch(t *testing.T) {
	long := strings.Repeat("ü", 9000)
	m := memory.New(nil)
	var tasks []string
	for i := range 60 {
		tasks = append(tasks, fmt.Sprintf(`{"id":"%d","title":"%d"}`, i, i))
	}
	if got := take(t, m, `{"phase":"plan","summary":"`+long+`","plan":{"goal":"`+long+`","sub_tasks":[`+strings.Join(tasks, ",")+`]}}`); !strings.Contains(got, "has 60 sub-tasks") || len(m.Board().Plan().SubTasks) != 40 {
		t.Errorf("%d sub-tasks; %s", len(m.Board().Plan().SubTasks), got)
	}

	for i := range 30 {
		take(t, m, fmt.Sprintf(`{"phase":"verify","summary":"%s","key_facts":["%d %s"]}`, long, i, long))
		act(m, "x", `{"t":"`+long+`"}`, "failed: "+long, true)
	}

	v := m.View(memory.Signals{}, 12000)
	if len(v) > 12000 || !utf8.ValidString(v) || !strings.Contains(v, "• 29 ü") || !strings.Contains(v, "(earlier facts are left out)") || !strings.Contains(v, "[Step 61] x — failed") {
		t.Errorf("%d bytes\n%s", len(v), v)
	}
}

// TestSignals: AYA-09.
func TestSignals(t *testing.T) {
	row := contract.Of(t, "AYA-09")
	same := fmt.Sprintf("⚠ the same x action has failed %d times: do something else", row.Number("2"))
	refused := fmt.Sprintf("⚠ %d actions were refused: find another way, or ask with feedback", row.Number("2"))
	m := memory.New(nil)
	has := func(s memory.Signals, want ...string) {
		t.Helper()
		got := m.Signals(s)
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q, want %q", got, want)
		}
	}

	has(memory.Signals{})
	has(memory.Signals{Used: 3, Budget: 12, Context: 49}, "ℹ 3 of 12 steps used")
	for percent, mark := range map[string]string{"50": "ℹ", "70": "⚠", "90": "⚠"} {
		has(memory.Signals{Context: row.Number(percent)}, mark+" more than "+percent+" % of the context is used")
	}
	has(memory.Signals{Context: 99}, "⚠ more than 90 % of the context is used")
	act(m, "x", "{}", "rejected: no", true)
	has(memory.Signals{})
	act(m, "x", "{}", "rejected: no", true)
	has(memory.Signals{}, same, refused)
	act(m, "y", "{}", "fine", false)
	for i := range row.Number("3") {
		take(t, m, `{"phase":"reason","summary":"hm"}`)
		if got := m.Signals(memory.Signals{}); i < 2 && len(got) != 2 {
			t.Errorf("after %d steps without an action: %q", i+1, got)
		}
	}

	has(memory.Signals{}, same, "⚠ 3 steps in a row without an action: act, or end", refused)
	m.ResetStreaks()
	has(memory.Signals{}, same, refused)
}

// TestCategories: AYA-10, specific kinds come first, then words in order.
func TestCategories(t *testing.T) {
	row := contract.Of(t, "AYA-10")
	var words []string // each with its category; words of an earlier category have priority
	for _, category := range []memory.Category{memory.NotFound, memory.Permission, memory.Timeout, memory.InvalidInput} {
		name := row.Quote(string(category))
		own := []string{name}
		if category != memory.Timeout {
			own = row.Between("`"+name+"` (", ")")
		}
		for _, word := range own {
			if got := memory.CategoryOf("", word); got != category {
				t.Errorf("%q: %s, want %s", word, got, name)
			}
			for _, earlier := range words {
				if got := memory.CategoryOf("", word+", "+earlier); got != memory.CategoryOf("", earlier) {
					t.Errorf("%q and %q: %s", word, earlier, got)
				}
			}
		}
		words = append(words, own...)
	}
	if got := memory.CategoryOf("", "something else"); string(got) != row.Quote("runtime") {
		t.Errorf("else: %s", got)
	}

	for _, c := range []struct {
		kind, message string
		want          memory.Category
	}{
		{"not_found", "permission denied", memory.NotFound}, {"tool_not_found", "", memory.NotFound},
		{"rejected", "", memory.Permission}, {"user_denied", "", memory.Permission},
		{"timeout", "", memory.Timeout}, {"invalid_args", "there is no such column", memory.InvalidInput},
		{"execution_error", "File Not Found: permission denied", memory.NotFound}, {"", "no such file", memory.NotFound},
		{"execution_error", "Permission timeout", memory.Permission}, {"", "access denied", memory.Permission},
		{"execution_error", "invalid timeout", memory.Timeout}, {"", "validation failed", memory.InvalidInput},
		{"execution_error", "invalid input", memory.InvalidInput}, {"unavailable", "gone", memory.Runtime}, {"", "", memory.Runtime},
	} {
		if got := memory.CategoryOf(c.kind, c.message); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.kind, c.message, got, c.want)
		}
	}
}
