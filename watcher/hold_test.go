package watcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rouse/internal/ledger"
	"rouse/watcher/fsys"
)

// A file waits the longer the longer it has waited, within bounds, and is a problem after a while.
func TestWaitPause(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		kind    holdKind
		waited  time.Duration
		want    time.Duration
		problem bool
	}{
		{heldOpen, 0, time.Second, false}, {heldOpen, 40 * time.Second, 5 * time.Second, false}, {heldOpen, heldProblem, heldPause, true}, {heldOpen, heldProblem - 1, heldPause, false}, {heldByPart, 24 * time.Hour, heldPause, true},
		{heldLink, time.Second, time.Second, false}, {heldLink, heldLinkEvent - 1, time.Second, false}, {heldLink, heldLinkEvent, time.Second, true}, {heldLink, 10 * time.Second, 1250 * time.Millisecond, true}, {heldLink, 24 * time.Hour, heldLinkPause, true},
	} {
		w := Wait{kind: c.kind, Since: now.Add(-c.waited)}
		if got := w.pause(now, time.Second); got != c.want || w.problem(now) != c.problem {
			t.Errorf("%v after %s: %s, %v", c.kind, c.waited, got, w.problem(now))
		}
	}
}

// The folder is read once for many empty files, and again once something came into it.
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
		// A folder that has just changed is read each time: its time would not show another change.
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	known := partialNames{}
	beside := func(name, want string) {
		t.Helper()
		if got, err := known.beside(fsys.Handle{Root: root, Name: name}); err != nil || got != want {
			t.Errorf("beside %s: %q (%v), want %q", name, got, err, want)
		}
	}

	write("x.pdf")
	beside("x.pdf", "")
	write("x.pdf.part")
	clear(known) // the times above hide it, as they are meant to
	beside("x.pdf", "x.pdf.part")
	known[dir] = partialList{folder: known[dir].folder, names: []string{"told.pdf.part"}}
	beside("told.pdf", "told.pdf.part")
	if err := os.Chtimes(dir, time.Now(), time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	beside("told.pdf", "")
	beside("x.pdf", "x.pdf.part")
}

// The lists of many folders are not all remembered: once there are too many, it starts over.
func TestPartialNamesAreBounded(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()

	known := partialNames{}
	for i := range maxPartialLists {
		known[fmt.Sprint(i)] = partialList{}
	}
	if _, err := known.beside(fsys.Handle{Root: root, Name: "x.pdf"}); err != nil || len(known) != 1 {
		t.Errorf("%d lists (%v)", len(known), err)
	}
}

// A file that somebody writes is not what it looked like: no hash is made of it, whatever else is with it.
func TestHeldChanged(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	file := d.handle(d.write("inbox/a.csv", "1"))
	info, err := file.Lstat()
	d.must(err)
	now, other := fsys.StampOf(info), fsys.StampOf(info)
	other.Size++
	w := Watch{}
	if err := w.held(file, now); err != nil {
		t.Error(err)
	}
	if err := w.held(file, other); !errors.Is(err, fsys.ErrChanged) {
		t.Errorf("%v", err)
	}

	d.must(os.Mkdir(d.path("inbox/dir"), 0o755))
	dir := d.handle(d.path("inbox/dir"))
	info, err = dir.Lstat()
	d.must(err)
	for name, look := range map[string]func() error{
		"held":   func() error { return w.held(dir, fsys.StampOf(info)) },
		"hashed": func() error { _, err := fsys.NewHashes().Of(t.Context(), dir, fsys.StampOf(info)); return err },
	} {
		if err := look(); !errors.Is(err, fsys.ErrChanged) {
			t.Errorf("a folder is %s: %v", name, err)
		}
	}
}

// A folder that converges waits for a file that is written to or downloaded, and not for a hard link, which no program completes;
// it looks at no more than a hundred files.
func TestHeldChange(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(After{})
	f := d.w.folders["in"]
	f.rootFound(d.path("inbox"))
	d.write("inbox/complete", "1")
	d.write("inbox/empty", "")
	d.write("inbox/x.pdf", "")
	d.write("inbox/x.pdf.part", "1")
	d.write("inbox/full.pdf", "1")
	d.write("inbox/full.pdf.part", "1")
	d.write("outside", "1")
	d.must(os.Link(d.path("outside"), d.path("inbox/link")))
	d.must(os.Mkdir(d.path("inbox/dir"), 0o755))
	d.write("inbox/dir.part", "1")

	many := slices.Repeat([]string{"complete"}, maxHeldChanges)
	for _, c := range []struct {
		lists [][]string
		held  bool
	}{
		{nil, false},
		{[][]string{{"complete", "empty", "link", "gone", "dir", "full.pdf"}}, false},
		{[][]string{{"x.pdf"}}, true},
		{[][]string{{"complete"}, {"link", "gone", "x.pdf"}}, true},
		{[][]string{append(many[1:], "x.pdf")}, true},
		{[][]string{many[1:], {"x.pdf"}}, true},
		{[][]string{append(many, "x.pdf")}, false},
		{[][]string{many, {"x.pdf"}}, false},
	} {
		if held := f.heldChange(c.lists...); (held != nil) != c.held {
			t.Errorf("%.80q: %v", c.lists, held)
		}
	}
}

// What waits for long is on record: after a minute, of a hard link after a few seconds, and once. For another reason it
// waits from then on.
func TestWaitIsOnRecordOnce(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path("inbox"), Settle: time.Hour}}))
	f := d.w.folders["in"]
	told := func() int {
		events, err := d.w.ledger.Events(t.Context(), ledger.EventFilter{Job: "in"})
		d.must(err)
		n := 0
		for _, e := range events {
			if e.Kind == WaitsEvent {
				n++
			}
		}
		return n
	}
	open, link := &heldError{heldOpen, "it is open"}, errHardLink
	path := d.path("inbox/a.csv")
	for i, c := range []struct {
		held   *heldError
		waited time.Duration // until this look; 0: since then
		told   int
	}{
		{open, 0, 0}, {open, heldEvent - time.Second, 0}, {open, heldEvent, 1}, {open, time.Hour, 1},
		{link, 0, 1}, {link, heldLinkEvent - time.Second, 1}, {link, heldLinkEvent, 2}, {link, time.Hour, 2},
	} {
		if w, known := f.waits[path]; known && c.waited > 0 {
			w.Since = time.Now().Add(-c.waited)
			f.waits[path] = w
		}
		before := time.Now()
		if !f.isHeldBack(t.Context(), ready(path, fsys.Stamp{}), c.held) || !f.debouncer.has(path) {
			t.Errorf("%d: it does not wait", i)
		}
		if due := f.debouncer.nextDue(); i == 0 && (due.Before(before.Add(time.Hour)) || due.After(time.Now().Add(time.Hour))) {
			t.Errorf("it is looked at again at %s, an hour after %s", due, before)
		}
		if w := f.waits[path]; c.waited == 0 && (w.Since.Before(before) || w.kind != c.held.kind) {
			t.Errorf("%d: it waits since %s", i, w.Since)
		}
		if got := told(); got != c.told {
			t.Errorf("%d: told %d times, want %d", i, got, c.told)
		}
	}

	if f.isHeldBack(t.Context(), ready(path, fsys.Stamp{}), fsys.ErrChanged) {
		t.Error("a file that changed is held back")
	}
}
