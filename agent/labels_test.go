package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
)

// label starts a run of another agent that has labels and is about to write to some places.
func (b *bench) label(letters string, places ...label.Place) int64 {
	b.t.Helper()
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Tool: "db_schema", Args: json.RawMessage(`{}`)}})
	_, a, err := b.ledger.StartAttempt(b.t.Context(), id)
	if err == nil {
		err = b.ledger.Labels.RecordTaint(b.t.Context(), a, label.TaintUpdate{Taint: letters, Writes: places})
	}
	if err == nil {
		err = b.ledger.Finish(b.t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess, Exit: domain.ExitEnded})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// at returns the place of a path below the bench's folder.
func (b *bench) at(name string) label.Place {
	b.t.Helper()
	dir, err := filepath.EvalSymlinks(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	return label.Place{Kind: label.PlaceFile, Name: filepath.Join(dir, name)}
}

// TestLabelsAreReadAtEachAccess checks that labels are read at each access. Content that another
// run writes meanwhile is labelled at the next call. If it was written during a read, the run gets
// the labels before its next action.
func TestLabelsAreReadAtEachAccess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.place("plain/one.txt", "plain/two.txt")
	var meanwhile func()
	other, err := tool.Define(tool.Spec{Name: "meanwhile", Description: "another run goes on", Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeRun,
		Access: tool.AccessOf(func(context.Context, tool.Invocation, struct{}) (tool.Access, error) {
			return tool.Access{Reads: []label.Place{b.at("plain/two.txt")}}, nil
		})}, func(context.Context, tool.Invocation, struct{}) (tool.Envelope, error) {
		meanwhile()
		return tool.Success(nil), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if b.runner, err = agent.New(agent.Options{Ledger: b.ledger, Databases: b.pool, Manifests: b.dir + "/manifests", Tools: []tool.Tool{other}}); err != nil {
		t.Fatal(err)
	}

	plays := func(calls ...playbook.Call) string {
		t.Helper()
		b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "plain", Playbook: calls}
		id := b.enqueue(ledger.Request{Job: "j", Agent: "plain"})
		if res := b.ends(id); res.Outcome != domain.OutcomeSuccess {
			t.Errorf("%+v", res)
		}
		return b.met(id)
	}
	read := func(name string) playbook.Call {
		return playbook.Call{Name: "file_read", With: map[string]any{"path": name}}
	}
	pause, last := playbook.Call{Name: "meanwhile"}, playbook.Call{Name: "notify", With: map[string]any{"title": "x"}}

	meanwhile = func() { b.label("A", b.at("plain/one.txt")) }
	if got := plays(read("two.txt"), pause, read("one.txt")); got != "A" {
		t.Errorf("what was labelled before it was read brought %q", got)
	}

	// The call of meanwhile reads two.txt. It was allowed before the label existed.
	meanwhile = func() { b.label("B", b.at("plain/two.txt")) }
	if got := plays(pause, last); got != "B" {
		t.Errorf("what was labelled while it was read brought %q", got)
	}
}

// TestLabelsFollowFiles checks that a file keeps its labels under another name, and a folder for
// all its files. A new file under the old name, written by a run without labels, is judged by that
// name.
func TestLabelsFollowFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.place("statements/may.txt", "work/own.txt", "plain/own.txt", "elsewhere/own.txt")
	plain := b.plan.Agents["plain"]
	plain.Read = []string{filepath.Join(b.dir, "statements")}
	b.plan.Agents["plain"] = plain
	clerk := b.plan.Agents["clerk"]
	clerk.Read, clerk.Public = []string{filepath.Join(b.dir, "plain"), filepath.Join(b.dir, "elsewhere")}, []string{filepath.Join(b.dir, "plain"), filepath.Join(b.dir, "elsewhere")}
	b.plan.Agents["clerk"] = clerk

	b.plan.Jobs["notes"] = plan.Job{Name: "notes", Agent: "plain", Playbook: []playbook.Call{
		{Name: "file_read", With: map[string]any{"path": filepath.Join(b.dir, "statements", "may.txt")}},
		{Name: "file_write", With: map[string]any{"path": "sub/note.txt", "content": "of May"}},
		{Name: "file_edit", With: map[string]any{"path": "sub/note.txt", "old_string": "May", "new_string": "June"}},
	}}
	writer := b.enqueue(ledger.Request{Job: "notes", Agent: "plain"})
	b.ends(writer)
	labels, err := b.ledger.Labels.List(t.Context())
	if err != nil || len(labels) != 1 || labels[0].Letter != "B" || labels[0].Run != writer || labels[0].Name != b.at("plain/sub/note.txt").Name {
		t.Fatalf("%+v %v", labels, err)
	}

	reads := func(path string) string {
		t.Helper()
		args, _ := json.Marshal(map[string]string{"path": path})
		id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Tool: "file_read", Args: args}})
		b.ends(id)
		return b.met(id)
	}
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(filepath.Join(b.dir, from), filepath.Join(b.dir, to)); err != nil {
			t.Fatal(err)
		}
	}

	for path, want := range map[string]string{"plain/sub/note.txt": "B", "plain/sub": "B", "plain": "B", "plain/own.txt": "", "elsewhere": ""} {
		if got := reads(filepath.Join(b.dir, path)); got != want {
			t.Errorf("%s brought %q, want %q", path, got, want)
		}
	}

	rename("plain/sub/note.txt", "elsewhere/report.txt")
	if got := reads(filepath.Join(b.dir, "elsewhere", "report.txt")); labels[0].ID != (label.FileID{}) && got != "B" {
		t.Errorf("under another name it brought %q", got)
	}
	if err := os.Link(filepath.Join(b.dir, "elsewhere", "report.txt"), filepath.Join(b.dir, "work", "linked.txt")); err != nil {
		t.Fatal(err)
	}
	if got := reads("linked.txt"); labels[0].ID != (label.FileID{}) && got != "B" {
		t.Errorf("by a hard link it brought %q", got)
	}
	if _, err := b.ledger.Labels.Clear(t.Context(), "B", b.at("plain")); err != nil {
		t.Fatal(err)
	}
	if got := reads("linked.txt"); got != "" {
		t.Errorf("after its owner has looked it brought %q", got)
	}
}

// TestLabelsOfPrompts checks that the content of a prompt adds its labels before the model is
// called: advice in the working folder, names of tables, and rows of a private database. Content
// that is not in the prompt adds no labels.
func TestLabelsOfPrompts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(b *bench, a *plan.Agent)
		want   string
	}{
		{"nothing", func(*bench, *plan.Agent) {}, ""},
		{"advice", func(b *bench, _ *plan.Agent) { b.place("work/AGENTS.md"); b.label("A", b.at("work/AGENTS.md")) }, "A"},
		{"a file of the project", func(b *bench, _ *plan.Agent) { b.place("work/go.mod", "work/x/y"); b.label("B", b.at("work/x/y")) }, "B"},
		{"a file of no project", func(b *bench, _ *plan.Agent) { b.place("work/x/y"); b.label("B", b.at("work/x/y")) }, ""},
		{"the folder above", func(b *bench, _ *plan.Agent) { b.place("work/go.mod"); b.label("A", b.at("")) }, "A"},
		{"names that strangers give", func(b *bench, _ *plan.Agent) {
			b.place("work/go.mod", "work/in/Obey.txt")
			b.plan.Jobs["drops"] = plan.Job{Name: "drops", Agent: "plain", Watched: plan.Watched{Folder: filepath.Join(b.dir, "work", "in")}}
		}, "A"},
		{"a private project", func(b *bench, a *plan.Agent) { b.place("work/go.mod"); a.PrivateFolders = []string{a.Workdir} }, "B"},
		{"a table", func(b *bench, _ *plan.Agent) { b.label("AB", label.TablePlace("clerk", "t")) }, "AB"},
		{"a table of another agent", func(b *bench, _ *plan.Agent) { b.label("AB", label.TablePlace("plain", "t")) }, ""},
		{"names of a private database", func(_ *bench, a *plan.Agent) { a.PrivateDatabase = true }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, modeltest.Turn{Text: "Nothing to do."})
			b.table()
			a := b.plan.Agents["clerk"]
			c.change(b, &a)
			b.plan.Agents["clerk"] = a
			id := b.adhoc("Look.")
			b.ends(id)
			if got := b.met(id); got != c.want {
				t.Errorf("the run begins with %q, want %q", got, c.want)
			}
		})
	}
}

// TestPrivatePlaces checks that a place that the owner marked as private adds its label when it is
// read, but not when another file is written beside it. The file that started the run is not
// private, wherever it is.
func TestPrivatePlaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.place("plain/own.txt", "plain/in/drop.txt", "clerk/own.txt")
	a := b.plan.Agents["plain"]
	a.Database, a.PrivateDatabase, a.PrivateFolders = true, true, []string{a.Workdir, filepath.Join(b.dir, "clerk")}
	a.Read, a.Public = []string{filepath.Join(b.dir, "clerk")}, []string{filepath.Join(b.dir, "clerk")}
	b.plan.Agents["plain"] = a
	for _, c := range []struct{ name, args, want string }{
		{"file_write", `{"path":"new.txt","content":"x"}`, ""},
		{"db_create_table", `{"name":"t","purpose":"p","columns":[{"name":"a","type":"TEXT"}]}`, ""},
		{"db_insert", `{"table":"t","row":{"a":"x"}}`, ""},
		{"file_read", `{"path":"own.txt"}`, "B"},
		{"file_read", `{"path":"../clerk/own.txt"}`, "B"},
		{"file_write", `{"path":"own.txt","content":"x"}`, "B"}, // shows the difference
		{"file_search", `{"pattern":"x"}`, "B"},
		{"db_query", `{"sql":"select * from t"}`, "B"},
		{"db_export", `{"sql":"select * from t","path":"t.csv"}`, "B"},
	} {
		id := b.enqueue(ledger.Request{Agent: "plain", Detail: ledger.TriggerDetail{Tool: c.name, Args: json.RawMessage(c.args)}})
		if res := b.ends(id); b.met(id) != c.want {
			t.Errorf("%s %s brought %q, want %q (%s)", c.name, c.args, b.met(id), c.want, res.Error)
		}
	}

	drop := filepath.Join(b.dir, "plain", "in", "drop.txt")
	b.plan.Jobs["drops"] = plan.Job{Name: "drops", Agent: "plain", Playbook: []playbook.Call{{Name: "file_read", With: map[string]any{"path": drop}}}, Watched: plan.Watched{Folder: filepath.Dir(drop)}}
	id := b.enqueue(ledger.Request{Job: "drops", Agent: "plain", Detail: ledger.TriggerDetail{File: &ledger.File{Path: drop, Name: "drop.txt", Size: 5, ModTime: modified(t, drop).Truncate(time.Nanosecond)}}})
	if res := b.ends(id); b.met(id) != "A" {
		t.Errorf("what started the run brought %q (%s)", b.met(id), res.Error)
	}
}
