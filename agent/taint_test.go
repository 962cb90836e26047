package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
)

// met returns the labels of a run.
func (b *bench) met(id int64) string {
	b.t.Helper()
	run, err := b.ledger.Runs.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return run.Taint
}

// place creates files below the bench's folder.
func (b *bench) place(names ...string) {
	b.t.Helper()
	for _, name := range names {
		path := filepath.Join(b.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("text\n"), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestTaint checks that the host labels a run by the places that its calls access, before they
// access them. Files outside the workdir are private. Files of untrusted sources are untrusted. So
// is everything that such a run keeps, for every later reader, until the owner has checked it.
func TestTaint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.place("statements/may.txt", "inbox/drop.txt", "plain/done/drop.txt", "plain/own.txt", "plain/private/own.txt", "clerk/x")
	plain := b.plan.Agents["plain"]
	plain.Database, plain.Read = true, []string{filepath.Join(b.dir, "statements"), filepath.Join(b.dir, "inbox"), filepath.Join(b.dir, "plain", "private")}
	b.plan.Agents["plain"] = plain
	b.plan.Jobs["watch"] = plan.Job{Name: "watch", Agent: "plain", Playbook: []playbook.Call{{Name: "db_schema"}}, Watched: plan.Watched{Folder: filepath.Join(b.dir, "inbox")}}
	b.plan.UntrustedFolders = []string{filepath.Join(b.dir, "plain", "done")}
	by := func(name, args string) int64 {
		return b.enqueue(ledger.Request{Agent: "plain", Detail: ledger.TriggerDetail{Tool: name, Args: json.RawMessage(args)}})
	}
	wants := func(name, args, want string) {
		t.Helper()
		id := by(name, args)
		res := b.ends(id)
		if got := b.met(id); got != want {
			t.Errorf("%s %s met %q, want %q (%s)", name, args, got, want, res.Error)
		}
	}

	statement, drop := filepath.Join(b.dir, "statements", "may.txt"), filepath.Join(b.dir, "inbox", "drop.txt")
	quoted := func(key, path string) string {
		text, _ := json.Marshal(map[string]string{key: path})
		return string(text)
	}
	wants("file_read", `{"path":"own.txt"}`, "")
	wants("file_read", `{"path":"private/own.txt"}`, "")
	wants("file_read", quoted("path", statement), "B")
	wants("file_read", `{"path":"../statements/may.txt"}`, "B")
	wants("file_read", quoted("path", drop), "AB")
	wants("file_read", quoted("path", filepath.Dir(drop)), "AB") // names are content too
	wants("file_read", `{"path":"done/drop.txt"}`, "A")          // regardless of the run that moved it there
	wants("file_search", `{"pattern":"text"}`, "A")
	wants("file_read", quoted("path", filepath.Join(b.dir, "elsewhere")), "")
	wants("db_create_table", `{"name":"t","purpose":"p","columns":[{"name":"a","type":"TEXT"}]}`, "")
	wants("db_query", `{"sql":"select * from t"}`, "")
	wants("file_write", `{"path":"note.txt","content":"x"}`, "")
	wants("notify", `{"title":"t","body":"b"}`, "")
	wants("complete", `{"summary":"x"}`, "")

	// A run with a dropped file labels the memory only if it writes.
	f := &ledger.File{Path: drop, Name: "drop.txt", Size: 5}
	dropped := func(calls ...playbook.Call) int64 {
		b.plan.Jobs["drops"] = plan.Job{Name: "drops", Agent: "plain", Playbook: calls}
		id := b.enqueue(ledger.Request{Job: "drops", Agent: "plain", Detail: ledger.TriggerDetail{File: f}})
		f.ModTime = modified(t, drop)
		b.ends(id)
		return id
	}

	f.ModTime = modified(t, drop)
	if id := dropped(playbook.Call{Name: "file_read", With: map[string]any{"path": drop}}); b.met(id) != "A" {
		t.Errorf("a run by a file met %q", b.met(id))
	}

	wants("db_query", `{"sql":"select * from t"}`, "")
	writer := dropped(playbook.Call{Name: "db_insert", With: map[string]any{"table": "t", "row": map[string]any{"a": "x"}}})
	if labels, err := b.ledger.Labels.List(t.Context()); err != nil || len(labels) != 1 || labels[0].Name != "plain/t" || labels[0].Letter != "A" || labels[0].Run != writer {
		t.Errorf("the labels are %+v, want one by run %d: %v", labels, writer, err)
	}

	wants("db_query", `{"sql":"select * from t"}`, "A")
	wants("file_read", `{"path":"own.txt"}`, "") // a different place
	wants("db_insert", `{"table":"t","row":{"a":"y"}}`, "")
	if _, err := b.ledger.Labels.Clear(t.Context(), "A", label.TablePlace("plain", "")); err != nil {
		t.Fatal(err)
	}

	wants("db_query", `{"sql":"select * from t"}`, "")
}

func modified(t *testing.T, path string) time.Time {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// TestPromptOfUntrustedMemory checks that the prompt of an agent contains its tables. If they are
// untrusted, the run has untrusted content before its first call.
func TestPromptOfUntrustedMemory(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Text: "Nothing to do."}, modeltest.Turn{Text: "Nothing to do."})
	first := b.adhoc("Look.")
	b.ends(first)
	other := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Folder: "/in", Tool: "db_schema", Args: json.RawMessage(`{}`)}})
	_, a, err := b.ledger.StartAttempt(t.Context(), other)
	if err == nil {
		err = b.ledger.Labels.RecordTaint(t.Context(), a, label.TaintUpdate{Writes: []label.Place{label.TablePlace("clerk", "")}})
	}
	if err != nil {
		t.Fatal(err)
	}

	second := b.adhoc("Look.")
	b.ends(second)
	if b.met(first) != "" || b.met(second) != "A" {
		t.Errorf("before: %q, after: %q", b.met(first), b.met(second))
	}
}

// TestWakeInheritsTaint checks that the labels of a run are passed on to a wake that it plans, and
// that the authorizer uses them.
func TestWakeInheritsTaint(t *testing.T) {
	t.Parallel()
	b, p := office(t)
	p.need = tool.Access{AddsTaint: tool.Outward}
	planner := b.enqueue(ledger.Request{Agent: "plain", Detail: ledger.TriggerDetail{Tool: "send", Args: json.RawMessage(`{"to":"bob"}`)}})
	_, a, err := b.ledger.StartAttempt(t.Context(), planner)
	if err == nil {
		err = b.ledger.Labels.RecordTaint(t.Context(), a, label.TaintUpdate{Taint: "AB"})
	}
	if err != nil {
		t.Fatal(err)
	}

	wake := b.enqueue(ledger.Request{Agent: "plain", Detail: ledger.TriggerDetail{Wake: &ledger.WakeDetail{AskedBy: planner}, Tool: "send", Args: json.RawMessage(`{"to":"bob"}`)}})
	if res := b.ends(wake); res.Wait == nil || b.met(wake) != "AB" || p.all() != "" {
		t.Errorf("%+v, met %q, sent %q", res, b.met(wake), p.all())
	}
}
