package watcher

import (
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	"rouse/internal/domain"
)

// looped is a folder that converges and whose baseline is one file.
func (d *harness) looped() *folder {
	d.t.Helper()
	d.write("inbox/a.csv", "1")
	d.must(d.w.Set(d.t.Context(), []Watch{{Job: "in", Agent: "a", Path: d.path("inbox"), Mode: ModeConverge, Settle: time.Millisecond}}))
	f := d.w.folders["in"]
	f.scan(d.t.Context(), "start")
	if f.conv.phase != StateIdle || f.conv.state.Fingerprint == "" {
		d.t.Fatalf("%+v", f.conv)
	}
	return f
}

// What went while it was looked at makes no run: the folder may never have looked like this.
func TestTornScanDecidesNothing(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	k := &walker{f: f, found: &walk{unreadable: map[string]error{}}}
	k.failed(d.path("inbox/sub"), fs.ErrNotExist)
	if n := f.evaluate(t.Context(), k.found); n != 0 || f.conv.phase != StateDebouncing || d.runs() != 0 {
		t.Errorf("%d files, %s, %d runs", n, f.conv.phase, d.runs())
	}

	f.conv.checkAt = time.Now()
	f.scan(t.Context(), "")
	if f.conv.phase != StateIdle || d.runs() != 0 {
		t.Errorf("%s, %d runs", f.conv.phase, d.runs())
	}

	// But one that is never whole is taken as it is in the end.
	f.MaxWait = 0
	f.evaluate(t.Context(), k.found)
	f.conv.checkAt = time.Now()
	f.evaluate(t.Context(), k.found)
	if f.conv.phase != StateProcessing || d.runs() != 1 {
		t.Errorf("%s, %d runs", f.conv.phase, d.runs())
	}
}

// A run that the ledger has, without having been able to say so, is not asked for twice.
func TestDispatchWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	before := f.conv
	cur := tree{{path: "b"}}
	changes, _, _ := changesBetween(nil, cur)
	one, err := f.dispatch(t.Context(), cur, nil, changes)
	d.must(err)
	f.conv = before
	cur = tree{{path: "c"}}
	two, err := f.dispatch(t.Context(), cur, nil, changes)
	d.must(err)
	if !one.New || two.New || two.Run != one.Run || f.conv.phase != StateProcessing || f.conv.state.Run != one.Run || f.conv.state.Fingerprint != (tree{{path: "b"}}).fingerprint() {
		t.Errorf("%+v, %+v, %+v", one, two, f.conv)
	}

	// The next one is another.
	d.end(one.Run, domain.OutcomeSuccess)
	f.conv.outcome = domain.OutcomeSuccess
	three, err := f.dispatch(t.Context(), cur, nil, changes)
	if err != nil || !three.New {
		t.Errorf("%+v (%v)", three, err)
	}
}

// A folder that was stopped writes nothing of its loop any more.
func TestStoppedFolderWritesNothing(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	d.must(d.w.Set(t.Context(), nil))
	if _, ok, err := d.w.ledger.WatchState(t.Context(), "in"); ok || err != nil {
		t.Errorf("it is not forgotten (%v)", err)
	}
	if err := f.becomeIdle(t.Context(), memory{}, "print"); err == nil {
		t.Error("it still writes")
	}
	if _, ok, err := d.w.ledger.WatchState(t.Context(), "in"); ok || err != nil {
		t.Errorf("it is not forgotten (%v)", err)
	}
}

// The event of a folder's removal comes late: by then another of its name is there, and
// subscribed to.
func TestFolderReplacedWithoutAnEvent(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Agent: "a", Path: d.path("inbox"), Recursive: true, Settle: time.Millisecond}}))
	f := d.w.folders["in"]
	f.scan(t.Context(), "start")
	d.must(os.Mkdir(d.path("inbox/sub"), 0o755))
	f.descend(t.Context(), d.path("inbox/sub"), "sub")
	f.noteRemoved(d.path("inbox/sub"), false)
	d.write("inbox/sub/a.csv", "1")
	f.unsubscribeRemoved()
	f.handleEvents(t.Context())
	if !slices.Contains(d.w.subs.events.WatchList(), d.path("inbox/sub")) || !f.debouncer.has(d.path("inbox/sub/a.csv")) {
		t.Errorf("%v is watched, %d files wait", d.w.subs.events.WatchList(), f.debouncer.len())
	}
}
