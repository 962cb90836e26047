package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/undo"
	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/steps"
)

// written returns a bench with a run that has changed a file, created another file and a row, sent
// a notice, and shared an artifact.
func written(t *testing.T) (b *bench, run ledger.Run) {
	b = setup(t)
	b.table()
	if err := os.MkdirAll(filepath.Join(b.dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}

	b.has("old.txt", "before")
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: []playbook.Call{
		{Name: "file_write", With: map[string]any{"path": "old.txt", "content": "after"}},
		{Name: "file_write", With: map[string]any{"path": "new/one.txt", "content": "one"}},
		{Name: "db_insert", With: map[string]any{"table": "log", "row": map[string]any{"what": "row"}}},
		{Name: "notify", With: map[string]any{"title": "It is written"}},
		{Name: "share_artifact", With: map[string]any{"path": "old.txt"}},
	}}

	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}

	b.finish(id, 1, res)
	run, err := b.ledger.Runs.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	return b, run
}

func (b *bench) has(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "work", name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// state describes the files and the rows.
func (b *bench) state() string {
	b.t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(b.dir, "work", name))
		if err != nil {
			return "none"
		}
		return string(text)
	}

	return fmt.Sprintf("old %s, new %s, %d rows", read("old.txt"), read("new/one.txt"), b.count())
}

func (b *bench) undo(run ledger.Run, spec undo.Options) undo.Result {
	b.t.Helper()
	spec.By = changelog.By{Actor: "user"}
	out, err := b.runner.Undoing.Undo(b.t.Context(), run, spec)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

const (
	asWritten = "old after, new one, 1 rows"
	asBefore  = "old before, new none, 0 rows"
)

func (b *bench) stands(want string) {
	b.t.Helper()
	if got := b.state(); got != want {
		b.t.Errorf("there is %s, want %s", got, want)
	}
}

// TestUndoBoth checks OSA-35 and OSA-61: files and database are undone together. Effects that
// remain are listed.
func TestUndoBoth(t *testing.T) {
	t.Parallel()
	b, run := written(t)
	dry := b.undo(run, undo.Options{DryRun: true})
	if dry.Done || !dry.CanUndo || len(dry.Files) != 2 || dry.Database.Changes != 1 {
		t.Errorf("before: %+v", dry)
	}

	left := strings.Join(dry.Left, "\n")
	for _, want := range []string{`the notice stays: {"title":"It is written"}`, "the artifact old.txt stays"} {
		if !strings.Contains(left, want) {
			t.Errorf("%q is not among what stays:\n%s", want, left)
		}
	}

	b.stands(asWritten)
	if out := b.undo(run, undo.Options{}); !out.Done || !out.CanUndo {
		t.Errorf("%+v", out)
	}

	b.stands(asBefore)
	if again := b.undo(run, undo.Options{}); !again.Done || again.Any() {
		t.Errorf("again: %+v", again)
	}

	events, err := b.ledger.Events.List(t.Context(), event.Filter{Run: run.ID})
	if last := events[len(events)-1]; err != nil || last.Kind != "run.undone" || !strings.Contains(string(last.Data), `"files":2`) {
		t.Errorf("%+v %v", last, err)
	}

	// Another attempt repeats both writes once.
	if _, err := b.ledger.Retry(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	if res := b.run(run.ID); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}

	b.stands(asWritten)
}

// TestUndoInTheWay checks that a later change of a file or the database prevents the whole undo,
// unless it may be lost.
func TestUndoInTheWay(t *testing.T) {
	t.Parallel()
	t.Run("a file", func(t *testing.T) {
		b, run := written(t)
		b.has("old.txt", "later")
		if out := b.undo(run, undo.Options{DryRun: true}); out.CanUndo {
			t.Errorf("before: %+v", out)
		}

		out := b.undo(run, undo.Options{})
		if out.Done || out.CanUndo || !strings.Contains(fmt.Sprint(out.Files), "the file was changed since") {
			t.Errorf("%+v", out)
		}

		b.stands("old later, new one, 1 rows")
		if out := b.undo(run, undo.Options{Force: true}); !out.Done {
			t.Errorf("%+v", out)
		}

		b.stands(asBefore)
	})
	t.Run("a row", func(t *testing.T) {
		b, run := written(t)
		db, release, err := b.pool.Get(t.Context(), "clerk")
		if err != nil {
			t.Fatal(err)
		}

		_, err = db.Execute(t.Context(), changelog.By{Actor: "user"}, agentdb.ExecuteSpec{SQL: "update log set what = 'later'"})
		release()
		if err != nil {
			t.Fatal(err)
		}
		if out := b.undo(run, undo.Options{}); out.Done || out.CanUndo || out.Database.ConflictCount != 1 {
			t.Errorf("%+v", out)
		}

		b.stands(asWritten)
		if out := b.undo(run, undo.Options{Only: undo.Files}); !out.Done || !strings.Contains(strings.Join(out.Left, "\n"), "what the run wrote into its database stays") {
			t.Errorf("%+v", out)
		}

		b.stands("old before, new none, 1 rows")
	})
}

// TestUndoCutOff checks that an interrupted undo can be completed by repeating it, wherever it
// stopped.
func TestUndoCutOff(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*bench, ledger.Run){
		"after the files":            func(b *bench, run ledger.Run) { b.undo(run, undo.Options{Only: undo.Files}) },
		"after the database":         func(b *bench, run ledger.Run) { b.undo(run, undo.Options{Only: undo.Database}) },
		"before a file was marked":   func(b *bench, _ ledger.Run) { b.has("old.txt", "before") },
		"before the last was marked": func(b *bench, _ ledger.Run) { _ = os.RemoveAll(filepath.Join(b.dir, "work", "new")) },
	} {
		t.Run(name, func(t *testing.T) {
			b, run := written(t)
			cut(b, run)
			if out := b.undo(run, undo.Options{}); !out.Done {
				t.Errorf("%+v", out)
			}
			b.stands(asBefore)
		})
	}
}

// TestUndoFilesOnFailure checks that undo_on_failure includes files. The next attempt does not
// repeat writes that the run itself has undone.
func TestUndoFilesOnFailure(t *testing.T) {
	t.Parallel()
	b, _ := written(t)
	b.has("old.txt", "before")
	b.plan.Jobs["f"] = plan.Job{Name: "f", Agent: "clerk", UndoOnFailure: true, Playbook: []playbook.Call{
		{Name: "file_write", With: map[string]any{"path": "mine.txt", "content": "mine"}, Save: "mine"},
		{Name: "file_write", With: map[string]any{"path": "gone.txt", "content": "gone"}, Save: "gone"},
		{Name: "file_undo", With: map[string]any{"path": "gone.txt"}},
		{Name: "file_read", With: map[string]any{"path": "later.txt"}},
	}}

	id := b.enqueue(ledger.Request{Job: "f", Agent: "clerk"})
	res := b.run(id)
	mine, gone := filepath.Join(b.dir, "work", "mine.txt"), filepath.Join(b.dir, "work", "gone.txt")
	if _, err := os.Stat(mine); err == nil || !strings.Contains(res.Error, "what it wrote into files was undone") {
		t.Fatalf("%v, %+v", err, res)
	}

	b.finish(id, 1, res)
	b.has("later.txt", "x")
	if _, err := b.ledger.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}
	if text, err := os.ReadFile(mine); string(text) != "mine" {
		t.Errorf("the file is not written again: %q %v", text, err)
	}

	if _, err := os.Stat(gone); err == nil {
		t.Error("what the run had undone itself is there again")
	}
}

// TestUndoWithoutDatabase checks that the files of an agent without a database are undone, and that
// no database is created.
func TestUndoWithoutDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["p"] = plan.Job{Name: "p", Agent: "plain", Playbook: []playbook.Call{{Name: "file_write", With: map[string]any{"path": "one.txt", "content": "one"}}}}
	id := b.enqueue(ledger.Request{Job: "p", Agent: "plain"})
	b.finish(id, 1, b.run(id))
	run, err := b.ledger.Runs.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	out := b.undo(run, undo.Options{})
	if _, err := os.Stat(filepath.Join(b.dir, "plain", "one.txt")); err == nil || !out.Done || len(out.Files) != 1 {
		t.Errorf("%v, %+v", err, out)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "agents", "plain")); err == nil {
		t.Error("it has a database now")
	}
}

// TestUndoOfReductions checks that the inner calls of a reduction are listed separately.
func TestUndoOfReductions(t *testing.T) {
	t.Parallel()
	if s := agent.Specs().Find("reduce"); s.Writes != tool.WritesNothing {
		t.Errorf("a reduction is said to write into %q", s.Writes)
	}
}

// TestUndoNamesACutOffCallOnce checks that an interrupted call that a later attempt reported to its
// model is listed once.
func TestUndoNamesACutOffCallOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["letters"] = plan.Job{Name: "letters", Agent: "plain"}
	id := b.enqueue(ledger.Request{Job: "letters", Agent: "plain"})
	call := ledger.Call{ID: "c", Key: "m1.1.1", Tool: "shell_run", Args: json.RawMessage(`{"command":"make it"}`), Effect: domain.EffectExternal}
	b.cutOff(id, call, nil, &ledger.Result{Outcome: domain.OutcomeError, RetryAt: time.Now()})

	_, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	call.Step, call.StartedAt = 1, time.Now()
	told := call
	told.State, told.FinishedAt, told.Envelope = domain.CallFailed, call.StartedAt, must[[]byte](t)(loop.UnknownResult("shell_run").MarshalJSON())
	for _, err := range []error{
		b.ledger.Steps.StartStep(t.Context(), a, steps.Step{Number: 1, StartedAt: call.StartedAt}),
		b.ledger.Steps.FinishStep(t.Context(), a, steps.Step{Number: 1, FinishedAt: call.StartedAt}),
		b.ledger.Steps.StartCall(t.Context(), a, call), b.ledger.Steps.FinishCall(t.Context(), a, told),
		b.ledger.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	out := b.undo(must[ledger.Run](t)(b.ledger.Runs.Get(t.Context(), id)), undo.Options{})
	if len(out.Left) != 1 || out.Left[0] != "what shell_run may have done stays: make it" {
		t.Errorf("%q", out.Left)
	}
}
