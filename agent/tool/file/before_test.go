package file_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/nofollow"
)

// TestBeforeOutlivesACrash checks that the changes of a program are recorded after a crash and can
// be undone. An incomplete Before is discarded.
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

	l, in, _ := keepBefore(t, dir, work, kept)
	write("old.txt", "new")
	write("made.txt", "made")
	if err := errors.Join(os.RemoveAll(filepath.Join(work, "sub")), os.MkdirAll(filepath.Join(kept, "half"), 0o700)); err != nil {
		t.Fatal(err)
	}

	for range 2 { // the second recovery finds no changes
		if err := file.RecoverBefore(t.Context(), l.FileOps, nofollow.UntrustedDirs{}, kept); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(kept); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
	undone, done, err := file.UndoRun(t.Context(), l.FileOps, tool.NewLocks(""), nofollow.UntrustedDirs{}, in.Run, false, false)
	if err != nil || !done || len(undone) != 3 {
		t.Fatalf("%+v %v %v", undone, done, err)
	}
	for name, want := range map[string]string{"old.txt": "old", "sub/gone.txt": "gone", "same.txt": "same", "made.txt": ""} {
		if got, _ := os.ReadFile(filepath.Join(work, name)); string(got) != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// keepBefore starts a run and stores the content of its folder.
func keepBefore(t *testing.T, dir, work, kept string) (*ledger.Ledger, tool.Invocation, *file.Before) {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	accepted, err := l.Enqueue(t.Context(), ledger.Request{Agent: "a", Trigger: domain.TriggerManual, Detail: ledger.TriggerDetail{Prompt: "x"}})
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
	before, err := file.TakeBefore(t.Context(), roots, in, filepath.Join(kept, file.BeforeName(run.ID, a.Number, in.Key)))
	if err != nil {
		t.Fatal(err)
	}
	return l, in, before
}

// TestAfterIsBounded checks that only a limited amount of a program's new files is read. The other
// files are recorded as not undoable.
func TestAfterIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	l, _, before := keepBefore(t, dir, work, filepath.Join(dir, "before"))

	const files, size = 105, 5 << 20 // 525 MiB, as sparse files
	for i := range files {
		name := filepath.Join(work, fmt.Sprintf("%03d", i))
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, size)); err != nil {
			t.Fatal(err)
		}
	}

	settled, err := before.Settle(t.Context(), l.FileOps, nofollow.UntrustedDirs{}, nil)
	if err != nil || settled.Files != files || settled.Kept != 512<<20/size || !strings.Contains(settled.Why, "more than 512 MiB") {
		t.Errorf("%d of %d kept: %s (%v)", settled.Kept, settled.Files, settled.Why, err)
	}
}
