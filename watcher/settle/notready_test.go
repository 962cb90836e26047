package settle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rouse/watcher/fsys"
)

// TestWaitPause checks that the pauses grow with the wait, within limits, and that a long wait is a
// problem.
func TestWaitPause(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		kind    notReadyKind
		waited  time.Duration
		want    time.Duration
		problem bool
	}{
		{openForWriting, 0, time.Second, false}, {openForWriting, 40 * time.Second, 5 * time.Second, false}, {openForWriting, problemAfter, pauseMax, true}, {openForWriting, problemAfter - 1, pauseMax, false}, {partialDownload, 24 * time.Hour, pauseMax, true},
		{hardLink, time.Second, time.Second, false}, {hardLink, linkReportAfter - 1, time.Second, false}, {hardLink, linkReportAfter, time.Second, true}, {hardLink, 10 * time.Second, 1250 * time.Millisecond, true}, {hardLink, 24 * time.Hour, linkPauseMax, true},
	} {
		w := WaitingFile{kind: c.kind, Since: now.Add(-c.waited)}
		if got := w.Pause(now, time.Second); got != c.want || w.Problem(now) != c.problem {
			t.Errorf("%v after %s: %s, %v", c.kind, c.waited, got, w.Problem(now))
		}
	}
}

// TestPartialNames checks that a folder is read once for many empty files, and again after a
// change.
func TestPartialNames(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()

	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		// A folder that has just changed is read each time, because its time would not show another
		// change.
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	known := PartialNames{}
	beside := func(name, want string) {
		t.Helper()
		if got, err := known.beside(fsys.Handle{Root: root, Name: name}); err != nil || got != want {
			t.Errorf("beside %s: %q (%v), want %q", name, got, err, want)
		}
	}

	write("x.pdf")
	beside("x.pdf", "")
	write("x.pdf.part")
	clear(known) // the old times above hide the change on purpose
	beside("x.pdf", "x.pdf.part")
	known[dir] = partialList{folder: known[dir].folder, names: []string{"told.pdf.part"}}
	beside("told.pdf", "told.pdf.part")
	if err := os.Chtimes(dir, time.Now(), time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	beside("told.pdf", "")
	beside("x.pdf", "x.pdf.part")
}

// TestPartialNamesAreBounded checks that the cache is cleared when it has too many folders.
func TestPartialNamesAreBounded(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()

	known := PartialNames{}
	for i := range maxPartialLists {
		known[fmt.Sprint(i)] = partialList{}
	}
	if _, err := known.beside(fsys.Handle{Root: root, Name: "x.pdf"}); err != nil || len(known) != 1 {
		t.Errorf("%d lists (%v)", len(known), err)
	}
}

// TestCheckReadyChanged checks that a file that is written to during the check gets no hash,
// regardless of other reasons.
func TestCheckReadyChanged(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.WriteFile("a.csv", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := root.Mkdir("dir", 0o755); err != nil {
		t.Fatal(err)
	}

	stamp := func(name string) fsys.Stamp {
		info, err := root.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		return fsys.StampOf(info)
	}
	file, dir, other := fsys.Handle{Root: root, Name: "a.csv"}, fsys.Handle{Root: root, Name: "dir"}, stamp("a.csv")
	other.Size++
	if err := CheckReady(file, stamp("a.csv"), "", false); err != nil {
		t.Error(err)
	}
	if err := CheckReady(file, other, "", false); !errors.Is(err, fsys.ErrChanged) {
		t.Errorf("%v", err)
	}
	if err := CheckReady(dir, stamp("dir"), "", false); !errors.Is(err, fsys.ErrChanged) {
		t.Errorf("a folder is ready: %v", err)
	}
	if _, err := fsys.NewHashes().Of(t.Context(), dir, stamp("dir")); !errors.Is(err, fsys.ErrChanged) {
		t.Errorf("a folder is hashed: %v", err)
	}
}

// TestCheckReadyHardLink checks that a file with two names is ready only in the agent's own folder.
func TestCheckReadyHardLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(root.WriteFile("a", []byte("1"), 0o600), root.Link("a", "b")); err != nil {
		t.Fatal(err)
	}
	info, err := root.Lstat("b")
	if err != nil {
		t.Fatal(err)
	}
	for own, want := range map[string]error{"": ErrHardLink, dir: nil} {
		if err := CheckReady(fsys.Handle{Root: root, Name: "b"}, fsys.StampOf(info), own, false); !errors.Is(err, want) {
			t.Errorf("own folder %q: %v, want %v", own, err, want)
		}
	}
}

// TestWaitingFilesReportOnce checks that a file is reported once for each reason: a hard link after
// a few seconds, any other file after a minute. A new reason restarts the wait.
func TestWaitingFilesReportOnce(t *testing.T) {
	t.Parallel()
	open, link := &NotReadyError{openForWriting, "it is open"}, ErrHardLink
	waiting := NewWaitingFiles()
	for i, c := range []struct {
		reason *NotReadyError
		at     time.Duration
		since  time.Duration
		report bool
	}{
		{open, 0, 0, false}, {open, reportAfter - time.Second, 0, false}, {open, reportAfter, 0, true}, {open, time.Hour, 0, false},
		{link, 2 * time.Hour, 2 * time.Hour, false}, {link, 2*time.Hour + linkReportAfter - time.Second, 2 * time.Hour, false},
		{link, 2*time.Hour + linkReportAfter, 2 * time.Hour, true}, {link, 3 * time.Hour, 2 * time.Hour, false},
	} {
		f, report := waiting.Note("a.csv", c.reason, noon.Add(c.at))
		if report != c.report || !f.Since.Equal(noon.Add(c.since)) || f.kind != c.reason.kind {
			t.Errorf("%d: %+v, reported: %t", i, f, report)
		}
	}

	waiting.Keep(func(path string) bool { return path == "a.csv" })
	if len(waiting.List()) != 1 {
		t.Error("a file that waits was dropped")
	}
	waiting.Keep(func(string) bool { return false })
	if waiting.Len() != 0 {
		t.Error("a file that does not wait was kept")
	}
}
