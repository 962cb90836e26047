package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/nofollow"
)

// What a program had changed when its process died is on record after the next start, so that it can be undone; what was only
// begun to be kept is discarded.
func TestBeforeOutlivesACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	work, kept := filepath.Join(dir, "work"), filepath.Join(dir, "before")
	write := func(name, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(work, name)), 0o755), os.WriteFile(filepath.Join(work, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("old.txt", "old")
	write("sub/gone.txt", "gone")
	write("same.txt", "same")

	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted, err := l.Enqueue(t.Context(), ledger.Request{Agent: "a", Trigger: domain.TriggerManual, Detail: ledger.Detail{Prompt: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	run, a, err := l.StartAttempt(t.Context(), accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}

	roots, err := tool.NewRoots(work, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := tool.Invocation{Run: run.ID, Attempt: a.Number, Agent: "a", Key: "p1.1"}
	if _, err := file.TakeBefore(t.Context(), roots, in, filepath.Join(kept, file.BeforeName(run.ID, a.Number, in.Key))); err != nil {
		t.Fatal(err)
	}
	write("old.txt", "new")
	write("made.txt", "made")
	if err := errors.Join(os.RemoveAll(filepath.Join(work, "sub")), os.MkdirAll(filepath.Join(kept, "half"), 0o700)); err != nil {
		t.Fatal(err)
	}

	for range 2 { // the second start finds nothing
		if err := file.RecoverBefore(t.Context(), l, nofollow.Boundary{}, kept); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(kept); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
	undone, done, err := file.UndoRun(t.Context(), l, tool.NewLocks(""), nofollow.Boundary{}, run.ID, false, false)
	if err != nil || !done || len(undone) != 3 {
		t.Fatalf("%+v %v %v", undone, done, err)
	}
	for name, want := range map[string]string{"old.txt": "old", "sub/gone.txt": "gone", "same.txt": "same", "made.txt": ""} {
		if got, _ := os.ReadFile(filepath.Join(work, name)); string(got) != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
