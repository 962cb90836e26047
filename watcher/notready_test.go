package watcher

import (
	"os"
	"slices"
	"testing"
	"time"

	"rouse/internal/ledger/event"
	"rouse/watcher/after"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

// TestHeldChange checks that a folder in mode converge waits for a file that is open for writing or
// being downloaded. It does not wait for a hard link, and checks at most a hundred files.
func TestHeldChange(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(after.Rule{})
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

	many := slices.Repeat([]string{"complete"}, maxCheckedChanges)
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
		if held := f.loop.unreadyChange(c.lists...); (held != nil) != c.held {
			t.Errorf("%.80q: %v", c.lists, held)
		}
	}
}

// TestWaitIfNotReady checks that a file that is not ready is checked again later, and recorded
// after a while.
func TestWaitIfNotReady(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path("inbox"), Settle: time.Hour}}))
	f := d.w.folders["in"]
	path := d.write("inbox/a.csv", "1")
	d.must(os.Link(path, d.path("inbox/b.csv")))
	info, err := os.Lstat(path)
	d.must(err)
	reason := settle.CheckReady(d.handle(path), fsys.StampOf(info), "", false)
	recorded := func() (n int) {
		events, err := d.w.ledger.Events.List(t.Context(), event.Filter{Job: "in"})
		d.must(err)
		for _, e := range events {
			if e.Kind == WaitsEvent {
				n++
			}
		}
		return n
	}

	before := time.Now()
	if !f.files.waitIfNotReady(t.Context(), ready(path, fsys.StampOf(info)), reason) || !f.files.debouncer.Has(path) || recorded() != 0 {
		t.Error("it does not wait, or is recorded at once")
	}
	if due := f.files.debouncer.NextDue(); due.Before(before.Add(time.Hour)) || due.After(time.Now().Add(time.Hour)) {
		t.Errorf("it is looked at again at %s, an hour after %s", due, before)
	}

	f.files.waiting = settle.NewWaitingFiles()
	f.files.waiting.Note(path, settle.ErrHardLink, before.Add(-time.Hour))
	for range 2 {
		if f.files.waitIfNotReady(t.Context(), ready(path, fsys.StampOf(info)), reason); recorded() != 1 {
			t.Errorf("recorded %d times, want 1", recorded())
		}
	}
	if f.files.waitIfNotReady(t.Context(), ready(path, fsys.Stamp{}), fsys.ErrChanged) {
		t.Error("a file that changed is held back")
	}
}
