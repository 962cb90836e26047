package watcher

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/runs"
	"rouse/watcher/after"
	"rouse/watcher/fsys"
	"rouse/watcher/tree"
)

// looped returns a folder in mode converge with a baseline of one file.
func (d *harness) looped() *folder {
	d.t.Helper()
	d.write("inbox/a.csv", "1")
	d.must(d.w.Set(d.t.Context(), []Watch{{Job: "in", Agent: "a", Path: d.path("inbox"), Mode: ModeConverge, Settle: time.Millisecond}}))
	f := d.w.folders["in"]
	f.scan(d.t.Context(), "start")
	if f.loop.conv.phase != StateIdle || f.loop.conv.state.Fingerprint == "" {
		d.t.Fatalf("%+v", f.loop.conv)
	}
	return f
}

// TestTornScanDecidesNothing checks that a scan during which a file vanished starts no run, because
// the folder may never have been in this state.
func TestTornScanDecidesNothing(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	k := &walker{f: f, found: &walk{unreadable: map[string]error{}}}
	k.failed(d.path("inbox/sub"), fs.ErrNotExist)
	if n := f.loop.evaluate(t.Context(), k.found); n != 0 || f.loop.conv.phase != StateDebouncing || d.runs() != 0 {
		t.Errorf("%d files, %s, %d runs", n, f.loop.conv.phase, d.runs())
	}

	f.loop.conv.checkAt = time.Now()
	f.scan(t.Context(), "")
	if f.loop.conv.phase != StateIdle || d.runs() != 0 {
		t.Errorf("%s, %d runs", f.loop.conv.phase, d.runs())
	}

	// After MaxWait, a torn scan is used anyway.
	f.MaxWait = 0
	f.loop.evaluate(t.Context(), k.found)
	f.loop.conv.checkAt = time.Now()
	f.loop.evaluate(t.Context(), k.found)
	if f.loop.conv.phase != StateProcessing || d.runs() != 1 {
		t.Errorf("%s, %d runs", f.loop.conv.phase, d.runs())
	}
}

// TestDispatchWithoutAnAnswer checks that a run is not queued twice if the response of the ledger
// was lost.
func TestDispatchWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	before := f.loop.conv
	cur := tree.Tree{{Path: "b"}}
	changes, _, _ := tree.Changes(nil, cur)
	one, err := f.loop.dispatch(t.Context(), cur, nil, changes)
	d.must(err)
	f.loop.conv = before
	cur = tree.Tree{{Path: "c"}}
	two, err := f.loop.dispatch(t.Context(), cur, nil, changes)
	d.must(err)
	if !one.New || two.New || two.Run != one.Run || f.loop.conv.phase != StateProcessing || f.loop.conv.state.Run != one.Run || f.loop.conv.state.Fingerprint != (tree.Tree{{Path: "b"}}).Fingerprint() {
		t.Errorf("%+v, %+v, %+v", one, two, f.loop.conv)
	}

	// The next request queues another run.
	d.end(one.Run, domain.OutcomeSuccess)
	f.loop.conv.outcome = domain.OutcomeSuccess
	three, err := f.loop.dispatch(t.Context(), cur, nil, changes)
	if err != nil || !three.New {
		t.Errorf("%+v (%v)", three, err)
	}
}

// TestStoppedFolderWritesNothing checks that a stopped folder no longer writes its state.
func TestStoppedFolderWritesNothing(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	d.must(d.w.Set(t.Context(), nil))
	if _, ok, err := d.w.ledger.Watches.State(t.Context(), "in"); ok || err != nil {
		t.Errorf("it is not forgotten (%v)", err)
	}
	if err := f.loop.becomeIdle(t.Context(), tree.Snapshot{}, "print"); err == nil {
		t.Error("it still writes")
	}
	if _, ok, err := d.w.ledger.Watches.State(t.Context(), "in"); ok || err != nil {
		t.Errorf("it is not forgotten (%v)", err)
	}
}

// TestFolderReplacedWithoutAnEvent checks a removal event that arrives after another folder with
// the same name was created and subscribed to.
func TestFolderReplacedWithoutAnEvent(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Agent: "a", Path: d.path("inbox"), Recursive: true, Settle: time.Millisecond}}))
	f := d.w.folders["in"]
	f.scan(t.Context(), "start")
	d.must(os.Mkdir(d.path("inbox/sub"), 0o755))
	f.descend(t.Context(), d.path("inbox/sub"), "sub")
	f.hints.noteRemoved(d.path("inbox/sub"), false)
	d.write("inbox/sub/a.csv", "1")
	f.unsubscribeRemoved()
	f.handleEvents(t.Context())
	if !slices.Contains(d.w.subs.events.WatchList(), d.path("inbox/sub")) || !f.files.debouncer.Has(d.path("inbox/sub/a.csv")) {
		t.Errorf("%v is watched, %d files wait", d.w.subs.events.WatchList(), f.files.debouncer.Len())
	}
}

// TestNoteChange checks that each change restarts the window of a folder, up to MaxWait. During a
// run and while it settles, a change may be the run's own.
func TestNoteChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(&Watcher{}, Watch{Mode: ModeConverge, Settle: time.Second, MaxWait: 3 * time.Second})
		began := time.Now()
		for i, want := range []time.Duration{time.Second, 1900 * time.Millisecond, 2800 * time.Millisecond, 3 * time.Second} {
			f.loop.noteChange()
			if got := f.loop.conv.checkAt.Sub(began); got != want || f.loop.conv.phase != StateDebouncing {
				t.Errorf("change %d: %s, looked at after %s, want %s", i, f.loop.conv.phase, got, want)
			}
			time.Sleep(900 * time.Millisecond)
		}

		for _, phase := range []State{StateProcessing, StateSettling} {
			f.loop.setPhase(phase, began)
			if f.loop.noteChange(); f.loop.conv.phase != phase || f.loop.conv.checkAt != began {
				t.Errorf("%s: %+v", phase, f.loop.conv)
			}
		}
	})
}

// TestPostpone checks that a decision is postponed up to MaxWait, but not longer.
func TestPostpone(t *testing.T) {
	t.Parallel()
	const settle, maxWait = time.Second, 10 * time.Second
	for name, c := range map[string]struct {
		now, until time.Duration
		put        bool
		at         time.Duration
	}{
		"soon":                       {time.Second, 2 * time.Second, true, 2 * time.Second},
		"until the end":              {time.Second, maxWait, true, maxWait},
		"beyond the end":             {time.Second, maxWait + 1, true, maxWait},
		"a moment before the end":    {maxWait - 1, 2 * maxWait, true, maxWait},
		"at the end":                 {maxWait, 2 * maxWait, false, 0},
		"when it has long been over": {2 * maxWait, 3 * maxWait, false, 0},
	} {
		f := newFolder(&Watcher{}, Watch{Settle: settle, MaxWait: maxWait})
		f.loop.conv = convergence{phase: StateDebouncing, since: noon, checkAt: noon}
		if put := f.loop.postpone(noon.Add(c.now), noon.Add(c.until)); put != c.put || f.loop.conv.checkAt.Sub(noon) != c.at {
			t.Errorf("%s: %t, looked at after %s", name, put, f.loop.conv.checkAt.Sub(noon))
		}
	}

	f := newFolder(&Watcher{}, Watch{Settle: settle, MaxWait: maxWait})
	if put := f.loop.postpone(time.Now(), time.Now().Add(settle)); !put || f.loop.conv.phase != StateDebouncing {
		t.Errorf("an idle folder: %t, %s", put, f.loop.conv.phase)
	}
}

// TestStillChanging checks that a change is postponed until it is a window old. A time in the
// future is ignored.
func TestStillChanging(t *testing.T) {
	t.Parallel()
	for ago, want := range map[time.Duration]bool{0: true, 1: true, time.Second - 1: true, time.Second: false, time.Hour: false, -1: false, -time.Hour: false} {
		f := newFolder(&Watcher{}, Watch{Settle: time.Second, MaxWait: time.Minute})
		f.loop.conv = convergence{phase: StateDebouncing, since: noon}
		if got := f.loop.stillChanging(noon, noon.Add(-ago)); got != want || got && f.loop.conv.checkAt.Sub(noon) != time.Second-ago {
			t.Errorf("changed %s ago: %t, looked at again after %s", ago, got, f.loop.conv.checkAt.Sub(noon))
		}
	}
}

// TestUnconfirmed checks that a decision about a polled folder waits until two scans agree.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	for degraded, want := range map[string][]bool{"": {false, false, false, false}, "it is far away": {true, false, true, false}} {
		f := newFolder(&Watcher{}, Watch{Settle: time.Second, MaxWait: time.Minute})
		f.loop.conv = convergence{phase: StateDebouncing, since: noon}
		for i, print := range []string{"one", "one", "two", "two"} {
			if got := f.loop.unconfirmed(noon, print, &walk{degraded: degraded}); got != want[i] {
				t.Errorf("%q, scan %d: %t", degraded, i, got)
			}
		}
	}
}

// TestRetriedRunIsAwaited checks that a folder follows a retried run, whether the watcher was
// notified of the retry or not.
func TestRetriedRunIsAwaited(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	if again, err := f.loop.retried(t.Context()); again || err != nil {
		t.Errorf("without a run: %t, %v", again, err)
	}
	a, err := f.loop.dispatch(t.Context(), tree.Tree{{Path: "b"}}, nil, &ledger.Changes{})
	d.must(err)
	d.end(a.Run, domain.OutcomeError)
	if again, err := f.loop.retried(t.Context()); again || err != nil {
		t.Errorf("after it failed: %t, %v", again, err)
	}

	f.loop.setPhase(StateIdle, time.Time{})
	if _, err := d.w.ledger.Retry(t.Context(), a.Run); err != nil {
		t.Fatal(err)
	}
	f.MaxWait = 0 // decide about a change at once
	if n := f.loop.evaluate(t.Context(), &walk{files: []tree.Sighting{{Path: d.path("inbox/c.csv"), Stamp: fsys.Stamp{Size: 1}}}}); n == 0 || d.runs() != 1 || f.loop.conv.phase != StateProcessing {
		t.Errorf("a change, and it is tried again: %d files, %d runs, %s", n, d.runs(), f.loop.conv.phase)
	}
	f.loop.setPhase(StateIdle, time.Time{})
	if again, err := f.loop.retried(t.Context()); !again || err != nil || f.loop.conv.phase != StateProcessing {
		t.Errorf("tried again: %t, %v, %s", again, err, f.loop.conv.phase)
	}

	d.must(d.w.ledger.Close())
	if _, err := f.loop.retried(t.Context()); err == nil {
		t.Error("what the ledger does not say is taken for an end")
	}
}

// TestEvaluateAgainWhatFailed checks that a failed write is retried after a moment, with the
// current state of the ledger.
func TestEvaluateAgainWhatFailed(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	d.must(d.w.ledger.Close())
	before := time.Now()
	f.loop.conv.checkAt = time.Time{}
	f.loop.evaluate(t.Context(), &walk{files: []tree.Sighting{{Path: d.path("inbox/b.csv"), Stamp: fsys.Stamp{Size: 1}}}})
	if f.loop.conv.loaded || f.loop.conv.checkAt.Before(before.Add(time.Second)) || f.loop.conv.checkAt.After(time.Now().Add(time.Second)) {
		t.Errorf("%+v", f.loop.conv)
	}
}

// TestDecidesWhenItIsTime checks that no decision is made during a run or before it is due.
func TestDecidesWhenItIsTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		phase State
		in    time.Duration
		runs  int
	}{
		{StateProcessing, -time.Second, 0}, {StateProcessing, time.Hour, 0}, {StateDebouncing, time.Hour, 0}, {StateSettling, time.Hour, 0},
		{StateDebouncing, -time.Second, 1}, {StateSettling, -time.Second, 1}, {StateIdle, time.Hour, 1}, {StateIdle, -time.Second, 1},
	} {
		d := newHarness(t)
		f := d.looped()
		f.loop.setPhase(c.phase, time.Now().Add(c.in))
		long := noon.UnixNano()
		f.loop.evaluate(t.Context(), &walk{files: []tree.Sighting{{Path: d.path("inbox/b.csv"), Stamp: fsys.Stamp{Size: 1, Modified: long, Changed: long}}}})
		if c.phase == StateIdle && d.runs() == 0 { // the removal has just happened
			f.MaxWait = 0
			f.loop.evaluate(t.Context(), &walk{files: []tree.Sighting{{Path: d.path("inbox/b.csv"), Stamp: fsys.Stamp{Size: 1, Modified: long, Changed: long}}}})
		}
		if got := d.runs(); got != c.runs {
			t.Errorf("%s, due in %s: %d runs", c.phase, c.in, got)
		}
	}
}

// TestLastRound checks that a loop ends after its last round. If its run failed, the loop has ended
// already, and the same changes begin a new loop.
func TestLastRound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		round   int
		outcome domain.Outcome
		runs    int
		now     int
	}{
		{maxRounds - 1, domain.OutcomeSuccess, 2, maxRounds}, {maxRounds, domain.OutcomeSuccess, 1, 0}, {maxRounds, domain.OutcomeError, 2, 1},
	} {
		d := newHarness(t)
		f := d.looped()
		a, err := f.loop.dispatch(t.Context(), tree.Tree{{Path: "a.csv"}}, nil, &ledger.Changes{})
		d.must(err)
		d.end(a.Run, c.outcome)
		f.loop.conv.state.Round, f.loop.conv.outcome, f.loop.conv.runPredates = c.round, c.outcome, true
		f.loop.setPhase(StateSettling, time.Now())
		long := noon.UnixNano()
		f.loop.evaluate(t.Context(), &walk{files: []tree.Sighting{{Path: d.path("inbox/a.csv"), Stamp: fsys.Stamp{Modified: long}}, {Path: d.path("inbox/b.csv"), Stamp: fsys.Stamp{Size: 1, Modified: long, Changed: long}}}})
		runs, err := d.w.ledger.Runs.List(t.Context(), runs.Filter{Job: "in", Limit: 10})
		d.must(err)
		if len(runs) != c.runs || f.loop.conv.state.Round != c.now {
			t.Errorf("%+v: %d runs, round %d", c, len(runs), f.loop.conv.state.Round)
		}
		if adopted := strings.Contains(d.kinds(), "watch.adopted"); adopted != (c.now == 0) {
			t.Errorf("%+v: told %q", c, d.kinds())
		}
	}
}

// TestLoopFollowsItsRun checks that a loop continues at the end of its run and after a retry.
func TestLoopFollowsItsRun(t *testing.T) {
	t.Parallel()
	const done, failed = domain.OutcomeSuccess, domain.OutcomeError
	for name, c := range map[string]struct {
		phase   State
		known   domain.Outcome // known outcome of its last run
		end     domain.Outcome
		retried bool
		is      func(f *folder)
		want    State
	}{
		"it is over":                        {phase: StateProcessing, end: done, want: StateSettling},
		"it failed":                         {phase: StateProcessing, end: failed, want: StateSettling},
		"it is on":                          {phase: StateProcessing, want: StateProcessing},
		"it is tried again":                 {phase: StateIdle, known: failed, end: failed, retried: true, want: StateProcessing},
		"tried again while it settles":      {phase: StateSettling, known: failed, end: failed, retried: true, want: StateProcessing},
		"over while it settles":             {phase: StateSettling, known: done, end: done, want: StateSettling},
		"failed while it is idle":           {phase: StateIdle, known: failed, end: failed, want: StateIdle},
		"before it knows its state":         {phase: StateProcessing, end: done, is: func(f *folder) { f.loop.conv.loaded = false }, want: StateProcessing},
		"the ledger has not changed since":  {phase: StateProcessing, end: done, is: func(f *folder) { f.loop.runChanged = make(chan struct{}) }, want: StateProcessing},
		"the ledger cannot be read":         {phase: StateProcessing, end: done, is: func(f *folder) { f.w.ledger.Close() }, want: StateProcessing},
		"it changed after it was read last": {phase: StateProcessing, end: done, is: func(f *folder) { f.loop.runChanged = closed }, want: StateSettling},
	} {
		d := newHarness(t)
		f := d.looped()
		d.w.runSettle = time.Hour
		run := d.dispatched(f)
		if c.end != "" {
			d.end(run, c.end)
		}
		if c.retried {
			_, err := d.w.ledger.Retry(t.Context(), run)
			d.must(err)
		}
		f.loop.conv.phase, f.loop.conv.outcome, f.loop.conv.since, f.loop.conv.checkAt = c.phase, c.known, noon, time.Time{}
		if c.is != nil {
			c.is(f)
		}

		before := time.Now()
		f.loop.checkRun(t.Context())
		if f.loop.conv.phase != c.want {
			t.Errorf("%s: %s, want %s", name, f.loop.conv.phase, c.want)
		}
		if again := !f.loop.conv.since.Equal(noon); again != (c.phase != c.want) {
			t.Errorf("%s: the phase begins again: %t", name, again)
		}
		if c.phase != c.want && c.want == StateSettling && (f.loop.conv.outcome != c.end || f.loop.conv.checkAt.Before(before.Add(time.Hour))) {
			t.Errorf("%s: %+v", name, f.loop.conv)
		}
	}
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// TestLoopLooksWhenItIsTime checks that a folder in mode converge is scanned when it is due, but
// not while it waits for an event or is missing.
func TestLoopLooksWhenItIsTime(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	for name, c := range map[string]struct {
		at   time.Time
		root string
		want bool
	}{
		"it is time": {time.Now().Add(-time.Second), f.root, true}, "later": {time.Now().Add(time.Hour), f.root, false},
		"it waits for an event": {time.Time{}, f.root, false}, "missing": {time.Now().Add(-time.Second), "", false},
	} {
		f.loop.conv.checkAt, f.root, f.report.status.LastScan = c.at, c.root, time.Time{}
		f.converge(t.Context())
		if got := !f.report.status.LastScan.IsZero(); got != c.want {
			t.Errorf("%s: it is looked at: %t", name, got)
		}
		f.root = d.path("inbox")
	}
}

// TestLoopOfAnotherFolder checks that a folder starts from scratch if its path now leads to another
// folder than the recorded one.
func TestLoopOfAnotherFolder(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.write("one/a.csv", "1")
	d.write("two/b.csv", "1")
	d.must(os.Remove(d.path("inbox")))
	d.link("one", "inbox")
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Agent: "a", Path: d.path("inbox"), Mode: ModeConverge, Settle: time.Millisecond}}))
	f := d.w.folders["in"]
	f.scan(t.Context(), "start")
	one := f.loop.conv.state.Fingerprint
	f.loop.conv.loaded = false
	f.scan(t.Context(), "")
	if !f.loop.conv.loaded || f.loop.conv.state.Fingerprint != one || f.loop.conv.phase != StateIdle {
		t.Errorf("%+v", f.loop.conv)
	}

	d.must(os.Remove(d.path("inbox")))
	d.link("two", "inbox")
	f.scan(t.Context(), "")
	if f.loop.conv.root != d.path("two") || f.loop.conv.state.Fingerprint == one || f.loop.conv.phase != StateIdle || d.runs() != 0 || d.kinds() != "watch.baseline watch.baseline" {
		t.Errorf("%+v, %d runs, told %s", f.loop.conv, d.runs(), d.kinds())
	}
}

// TestLoadedState checks the phase in which a new watcher continues, for each recorded state of the
// folder.
func TestLoadedState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		is          func(d *harness, f *folder)
		want        State
		predates    bool
		round       int
		fingerprint bool // whether a fingerprint is recorded
	}{
		"nothing recorded": {func(d *harness, f *folder) { d.must(d.w.ledger.Watches.Delete(d.t.Context(), "in")) }, StateIdle, false, 0, false},
		"at rest":          {func(*harness, *folder) {}, StateIdle, false, 0, true},
		"a run is on":      {func(d *harness, f *folder) { d.dispatched(f) }, StateProcessing, false, 1, true},
		"a run is over":    {func(d *harness, f *folder) { d.end(d.dispatched(f), domain.OutcomeSuccess) }, StateSettling, true, 1, true},
		"a run failed":     {func(d *harness, f *folder) { d.end(d.dispatched(f), domain.OutcomeError) }, StateSettling, true, 1, true},
		"at rest after it": {func(d *harness, f *folder) {
			d.end(d.dispatched(f), domain.OutcomeSuccess)
			d.must(f.loop.becomeIdle(d.t.Context(), tree.Snapshot{}, tree.Tree(nil).Fingerprint()))
		}, StateIdle, false, 0, true},
		"recorded by a version that is not known": {func(d *harness, f *folder) {
			d.must(d.w.ledger.Watches.Save(d.t.Context(), claim.WatchState{Job: "in", Fingerprint: "f", Tree: "9 x", Round: 3}))
		}, StateIdle, false, 0, false},
	} {
		d := newHarness(t)
		f := d.looped()
		d.w.runSettle = time.Hour
		c.is(d, f)
		before := time.Now()
		d.must(f.loop.loadState(t.Context()))
		l := f.loop.conv
		if l.phase != c.want || l.runPredates != c.predates || l.state.Round != c.round || (l.state.Fingerprint != "") != c.fingerprint || !l.loaded {
			t.Errorf("%s: %+v", name, l)
		}
		if l.phase == StateSettling && l.checkAt.Before(before.Add(time.Hour)) {
			t.Errorf("%s: it is looked at after %s", name, l.checkAt.Sub(before))
		}
		if f.report.phase != c.want || f.report.status.Round != c.round {
			t.Errorf("%s: it is told to be %s, in round %d", name, f.report.phase, f.report.status.Round)
		}
		if follows := f.loop.conv.follows(); follows != (c.want != StateIdle) {
			t.Errorf("%s: its run is followed: %t", name, follows)
		}
	}
}

// dispatched queues a run of the folder.
func (d *harness) dispatched(f *folder) int64 {
	d.t.Helper()
	a, err := f.loop.dispatch(d.t.Context(), tree.Tree{{Path: "b"}}, nil, &ledger.Changes{})
	d.must(err)
	return a.Run
}

// TestLoopAfterAFailedRun checks that a folder is idle in the state that a failed run left. Only a
// change of that state starts the next run, which receives all changes since the last success. A
// successful retry discards the failure.
func TestLoopAfterAFailedRun(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	recorded := f.loop.conv.state.Fingerprint
	d.write("inbox/b.csv", "1")
	run := d.dispatched(f)
	d.end(run, domain.OutcomeError)
	f.loop.conv.outcome = domain.OutcomeError
	left := tree.Tree{{Path: "left"}}.Fingerprint()
	d.must(f.loop.giveUp(t.Context(), tree.Snapshot{Last: tree.Tree{{Path: "b"}}}, left, 1))
	if f.loop.conv.state.Fingerprint == left || f.loop.conv.state.Fingerprint == recorded || f.loop.conv.idlePrint != left || f.loop.conv.phase != StateIdle {
		t.Errorf("%+v", f.loop.conv)
	}
	if _, err := f.loop.loadSnapshot(t.Context(), nil); err != nil || f.loop.conv.idlePrint != left { // with an unchanged selection
		t.Errorf("looked at: %+v (%v)", f.loop.conv, err)
	}
	d.must(f.loop.loadState(t.Context()))
	if f.loop.conv.idlePrint != left || f.loop.conv.phase != StateIdle || !f.loop.conv.failed() {
		t.Errorf("loaded: %+v", f.loop.conv)
	}

	if _, err := d.w.ledger.Retry(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	d.end(run, domain.OutcomeSuccess)
	d.must(f.loop.loadState(t.Context()))
	if f.loop.conv.idlePrint != f.loop.conv.state.Fingerprint || f.loop.conv.failed() {
		t.Errorf("after a retry: %+v", f.loop.conv)
	}
}

// TestLastRemoval checks that the time of a removal is taken from the nearest parent that still
// exists.
func TestLastRemoval(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	d.must(os.MkdirAll(d.path("inbox/sub/deep"), 0o755))
	d.must(os.Remove(d.path("inbox/sub/deep")))
	info, err := os.Lstat(d.path("inbox/sub"))
	d.must(err)
	sub := fsys.StampOf(info).Arrived()
	info, err = os.Lstat(d.path("inbox"))
	d.must(err)
	root := fsys.StampOf(info).Arrived()
	for _, c := range []struct {
		removed []string
		want    time.Time
	}{
		{nil, time.Time{}}, {[]string{"a"}, root}, {[]string{"sub/a"}, sub}, {[]string{"sub/deep/a", "sub/deep/b"}, sub}, {[]string{"gone/deep/a"}, root}, {[]string{"sub/a", "a"}, latest(sub, root)}, {[]string{"a", "sub/a"}, latest(sub, root)},
	} {
		if got := f.loop.lastRemoval(&ledger.Changes{Removed: c.removed}); !got.Equal(c.want) {
			t.Errorf("%q: %s, want %s", c.removed, got, c.want)
		}
	}
}

// TestLoopWithUnreadableFiles checks that unreadable files count as unchanged. Only other changes
// start a run.
func TestLoopWithUnreadableFiles(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.write("inbox/sub/c.csv", "1")
	d.write("inbox/a.csv", "1")
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Agent: "a", Path: d.path("inbox"), Mode: ModeConverge, Recursive: true, Settle: time.Millisecond}}))
	f := d.w.folders["in"]
	f.scan(t.Context(), "start")
	info, err := os.Lstat(d.path("inbox/a.csv"))
	d.must(err)
	denied := map[string]error{d.path("inbox/sub"): fs.ErrPermission}
	f.loop.evaluate(t.Context(), &walk{files: []tree.Sighting{{Path: d.path("inbox/a.csv"), Stamp: fsys.StampOf(info)}}, unreadable: denied})
	if f.loop.conv.phase != StateIdle || d.runs() != 0 {
		t.Errorf("%s, %d runs", f.loop.conv.phase, d.runs())
	}

	long := noon.UnixNano()
	n := f.loop.evaluate(t.Context(), &walk{files: []tree.Sighting{{Path: d.path("inbox/a.csv"), Stamp: fsys.StampOf(info)}, {Path: d.path("inbox/b.csv"), Stamp: fsys.Stamp{Modified: long, Changed: long}}}, unreadable: denied})
	if f.loop.conv.phase != StateProcessing || d.runs() != 1 || n != 1 {
		t.Errorf("%s, %d runs of %d files", f.loop.conv.phase, d.runs(), n)
	}
}

// TestLoopOfAPolledFolder checks that a decision about a polled folder waits until two scans find
// the same files.
func TestLoopOfAPolledFolder(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	f.MaxWait = time.Hour
	info, err := os.Lstat(d.path("inbox/a.csv"))
	d.must(err)
	long := noon.UnixNano()
	for i, c := range []struct {
		size int64
		runs int
	}{{1, 0}, {2, 0}, {2, 1}} {
		f.loop.conv.checkAt = time.Time{}
		f.loop.evaluate(t.Context(), &walk{degraded: "it is far away", files: []tree.Sighting{{Path: d.path("inbox/a.csv"), Stamp: fsys.StampOf(info)}, {Path: d.path("inbox/b.csv"), Stamp: fsys.Stamp{Size: c.size, Modified: long, Changed: long}}}})
		if got := d.runs(); got != c.runs {
			t.Errorf("scan %d: %d runs", i, got)
		}
	}
}

// TestLoopOfAFailedRun checks that a failed run ends its loop after the folder has settled. If the
// run failed while no watcher was running, a difference starts another loop, because others may
// have made the changes.
func TestLoopOfAFailedRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome   domain.Outcome
		predates  bool
		different bool
		runs      int
		told      string
	}{
		"failed":                              {domain.OutcomeError, false, true, 1, "watch.stopped"},
		"failed, and left nothing":            {domain.OutcomeError, false, false, 1, "watch.stopped"},
		"failed meanwhile":                    {domain.OutcomeError, true, true, 2, ""},
		"failed meanwhile, nothing different": {domain.OutcomeError, true, false, 1, "watch.stopped"},
		"done":                                {domain.OutcomeSuccess, false, true, 2, ""},
		"done, nothing different":             {domain.OutcomeSuccess, false, false, 1, "watch.converged"},
	} {
		d := newHarness(t)
		f := d.looped()
		info, err := os.Lstat(d.path("inbox/a.csv"))
		d.must(err)
		long := noon.UnixNano()
		files := []tree.Sighting{{Path: d.path("inbox/a.csv"), Stamp: fsys.StampOf(info)}, {Path: d.path("inbox/b.csv"), Stamp: fsys.Stamp{Size: 1, Modified: long, Changed: long}}}
		f.loop.setPhase(StateDebouncing, time.Time{})
		f.loop.evaluate(t.Context(), &walk{files: files})
		if d.runs() != 1 {
			t.Fatalf("%s: %d runs", name, d.runs())
		}
		d.end(f.loop.conv.state.Run, c.outcome)
		f.loop.conv.outcome, f.loop.conv.runPredates = c.outcome, c.predates
		f.loop.setPhase(StateSettling, time.Time{})
		if c.different {
			files = append(files, tree.Sighting{Path: d.path("inbox/c.csv"), Stamp: fsys.Stamp{Size: 1, Modified: long, Changed: long}})
		}
		f.loop.evaluate(t.Context(), &walk{files: files})
		runs, err := d.w.ledger.Runs.List(t.Context(), runs.Filter{Job: "in", Limit: 10})
		d.must(err)
		if want := strings.TrimSpace("watch.baseline " + c.told); len(runs) != c.runs || !sameKinds(d.kinds(), want) {
			t.Errorf("%s: %d runs, told %q, want %q", name, len(runs), d.kinds(), want)
		}
		if c.runs == 1 && f.loop.conv.phase != StateIdle || c.runs == 2 && f.loop.conv.phase != StateProcessing {
			t.Errorf("%s: %s", name, f.loop.conv.phase)
		}
	}
}

// TestStartMissing checks that all files are new in a folder that was missing when its job began.
// This is recorded once, if it matters.
func TestStartMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mode, existing, told string }{
		{ModeConverge, ExistingIgnore, "watch.baseline watch.missing"}, {ModeConverge, ExistingProcess, "watch.missing"},
		{ModePerFile, ExistingIgnore, "watch.baseline watch.missing"}, {ModePerFile, ExistingProcess, "watch.missing"}, {ModeBatch, ExistingIgnore, "watch.baseline watch.missing"},
	} {
		d := newHarness(t)
		watches := []Watch{{Job: "in", Agent: "a", Path: d.path("inbox/none"), Mode: c.mode, Existing: c.existing}}
		d.must(d.w.Set(t.Context(), watches))
		f := d.w.folders["in"]
		for range 2 {
			f.scan(t.Context(), "start")
			if !sameKinds(d.kinds(), c.told) || f.loop.conv.loaded != (c.mode == ModeConverge) {
				t.Errorf("%+v: told %q, the state is loaded: %t", c, d.kinds(), f.loop.conv.loaded)
			}
		}

		d.write("inbox/none/a.csv", "1")
		f.MaxWait = 0
		f.scan(t.Context(), "")
		if f.Mode == ModeConverge {
			f.loop.conv.checkAt = time.Time{}
			f.scan(t.Context(), "")
			if d.runs() != 1 {
				t.Errorf("%+v: %d runs of what came", c, d.runs())
			}
		} else if !f.files.debouncer.Has(d.path("inbox/none/a.csv")) {
			t.Errorf("%+v: what came is not new", c)
		}

		// A watcher that starts later uses the same record.
		g := newFolder(d.w, f.Watch)
		d.must(os.RemoveAll(d.path("inbox/none")))
		told := d.kinds()
		g.scan(t.Context(), "start")
		if again := strings.Count(d.kinds(), "watch.baseline") - strings.Count(told, "watch.baseline"); again != 0 {
			t.Errorf("%+v: told %q", c, d.kinds())
		}
	}
}

// TestRestTellsOfALoop checks that the end of a loop is recorded if a loop was running and its run
// succeeded.
func TestRestTellsOfALoop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		round   int
		outcome domain.Outcome
		told    string
	}{
		{0, "", "watch.baseline"}, {0, domain.OutcomeSuccess, "watch.baseline"}, {2, domain.OutcomeSuccess, "watch.baseline watch.converged"}, {2, domain.OutcomeError, "watch.baseline"}, {0, domain.OutcomeError, "watch.baseline"},
	} {
		d := newHarness(t)
		f := d.looped()
		f.loop.conv.state.Round, f.loop.conv.outcome = c.round, c.outcome
		d.must(f.loop.rest(t.Context(), tree.Snapshot{}, "print"))
		if got := d.kinds(); !sameKinds(got, c.told) || f.loop.conv.state.Round != 0 || f.loop.conv.idlePrint != "print" {
			t.Errorf("%+v: told %q, %+v", c, got, f.loop.conv)
		}
	}

	d := newHarness(t)
	f := d.looped()
	f.loop.conv.state.Round = 2
	d.must(d.w.ledger.Close())
	if err := f.loop.rest(t.Context(), tree.Snapshot{}, "print"); err == nil {
		t.Error("what was not recorded is told")
	}
}

// TestBusy checks that the error of a busy folder names its run, if there is one.
func TestBusy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		missing bool
		phase   State
		run     int64
		want    string
	}{
		"missing":               {true, StateIdle, 7, "the folder /in is not there"},
		"idle":                  {false, StateIdle, 7, ""},
		"a run is on":           {false, StateProcessing, 7, "its folder is processing (run 7); "},
		"a run settles":         {false, StateSettling, 7, "its folder is settling (run 7); "},
		"a change after a run":  {false, StateDebouncing, 7, "its folder is debouncing; "},
		"the first change":      {false, StateDebouncing, 0, "its folder is debouncing; "},
		"a run without its row": {false, StateProcessing, 0, "its folder is processing; "},
	} {
		f := newFolder(&Watcher{}, Watch{Job: "in", Path: "/in"})
		f.report.missing, f.loop.conv.phase, f.loop.conv.state.Run = c.missing, c.phase, c.run
		err := f.loop.busy()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrBusy) != (err != nil && !c.missing) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestForgetsTheLoop checks that the state of a loop is deleted if its job no longer exists or has
// another mode. The preexisting files stay recorded.
func TestForgetsTheLoop(t *testing.T) {
	t.Parallel()
	for mode, kept := range map[string]bool{ModeConverge: true, ModePerFile: false, ModeBatch: false} {
		d := newHarness(t)
		d.looped()
		d.must(d.w.ledger.Watches.Save(t.Context(), claim.WatchState{Job: "files", Tree: "x"}, claim.WatchState{Job: "gone", Tree: "x"}))
		d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Agent: "a", Path: d.path("inbox"), Mode: mode}, {Job: "files", Path: d.path("files")}}))
		known, err := d.w.ledger.Watches.States(t.Context())
		d.must(err)
		_, files := known["files"]
		_, gone := known["gone"]
		if (known["in"].Fingerprint != "") != kept || !files || !gone {
			t.Errorf("%s: %+v", mode, known)
		}
		if told := strings.Contains(d.kinds(), "watch.forgotten"); told == kept {
			t.Errorf("%s: told %q", mode, d.kinds())
		}
	}
}

// TestNestedWatches checks that a folder excludes the folders inside it that are watched, at any
// depth, but not itself.
func TestNestedWatches(t *testing.T) {
	t.Parallel()
	w := &Watcher{}
	var watches []Watch
	for _, c := range [][2]string{{"all", "/"}, {"in", "/in"}, {"again", "/in"}, {"a", "/in/a"}, {"b", "/in/a/b"}, {"inn", "/inn"}} {
		watches = append(watches, Watch{Job: c[0], Path: filepath.FromSlash(c[1])})
	}
	folders := w.foldersOf(watches)
	for job, want := range map[string]string{"all": "/in /in /in/a /in/a/b /inn", "in": "/in/a /in/a/b", "again": "/in/a /in/a/b", "a": "/in/a/b", "b": "", "inn": ""} {
		if got := filepath.ToSlash(strings.Join(folders[job].nestedWatches, " ")); got != want {
			t.Errorf("%s: %s, want %s", job, got, want)
		}
	}
}

// TestPreexistingIsRecorded checks that preexisting files are recorded once. A later watcher uses
// the record. With another mode or an unreadable record, a watcher starts from scratch.
func TestPreexistingIsRecorded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(d *harness)
		baseline int
		new      bool // whether a file has arrived in the meantime
	}{
		"nothing": {func(*harness) {}, 1, true},
		"damaged": {func(d *harness) {
			d.must(d.w.ledger.Watches.Save(d.t.Context(), claim.WatchState{Job: "in", Tree: "9 x"}))
		}, 2, false},
		"as a loop": {func(d *harness) {
			st, _, err := d.w.ledger.Watches.State(d.t.Context(), "in")
			d.must(err)
			d.must(d.w.ledger.Watches.Save(d.t.Context(), claim.WatchState{Job: "in", Fingerprint: "f", Tree: st.Tree}))
		}, 2, false},
		"of another folder": {func(d *harness) {
			other := d.w.folders["in"].Watch
			other.Path = d.path("other")
			d.must(os.Mkdir(other.Path, 0o700))
			newFolder(d.w, other).scan(d.t.Context(), "start")
		}, 3, false},
		"missing at first": {func(d *harness) {
			d.must(os.Rename(d.path("inbox"), d.path("away")))
			newFolder(d.w, d.w.folders["in"].Watch).scan(d.t.Context(), "start")
			d.must(os.Rename(d.path("away"), d.path("inbox")))
		}, 1, true},
	} {
		d := newHarness(t)
		d.write("inbox/old.csv", "1")
		d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Agent: "a", Path: d.path("inbox"), Existing: ExistingIgnore}}))
		f := d.w.folders["in"]
		f.scan(t.Context(), "start")
		if f.files.debouncer.Len() != 0 {
			t.Errorf("%s: what was there before is new", name)
		}
		d.write("inbox/new.csv", "1")
		c.change(d)
		g := newFolder(d.w, f.Watch)
		g.scan(t.Context(), "start")
		g.scan(t.Context(), "")
		if g.files.debouncer.Has(d.path("inbox/old.csv")) || g.files.debouncer.Has(d.path("inbox/new.csv")) != c.new || strings.Count(d.kinds(), "watch.baseline") != c.baseline {
			t.Errorf("%s: %d wait, told %q", name, g.files.debouncer.Len(), d.kinds())
		}
	}
}

// TestEnqueueFileRefuses checks that EnqueueFile returns an error with the reason if the named file
// is not complete.
func TestEnqueueFileRefuses(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := d.set(after.Rule{})
	d.write("inbox/x.pdf", "")
	d.write("inbox/x.pdf.part", "1")
	d.write("inbox/full.pdf", "1")
	d.write("inbox/full.pdf.part", "1")
	d.write("inbox/empty.csv", "")
	d.write("outside", "1")
	d.must(os.Link(d.path("outside"), d.path("inbox/link.csv")))
	d.write("own/file", "1")
	d.must(os.Link(d.path("own/file"), d.path("own/link.csv")))
	w.OwnFolder = d.path("own")
	for name, want := range map[string]string{
		"inbox/x.pdf": "is not taken: it is empty, and its download goes on", "inbox/link.csv": "is not taken: it is a hard link", "inbox/none": "cannot be read", "inbox": "is not a file",
		"inbox/full.pdf": "", "inbox/empty.csv": "", "own/link.csv": "",
	} {
		a, err := EnqueueFile(t.Context(), d.w.ledger, w, d.path(name), false)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || a.New != (want == "") {
			t.Errorf("%s: %+v (%v), want %q", name, a, err, want)
		}
	}
}

// TestFollowsItsRun checks that a run is followed until it has settled, or until a retry if it
// failed.
func TestFollowsItsRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		phase   State
		run     int64
		outcome domain.Outcome
		want    bool
	}{
		{StateProcessing, 7, "", true}, {StateSettling, 7, domain.OutcomeSuccess, true}, {StateIdle, 7, domain.OutcomeError, true}, {StateDebouncing, 7, domain.OutcomeError, true},
		{StateIdle, 7, domain.OutcomeSuccess, false}, {StateDebouncing, 7, domain.OutcomeSuccess, false}, {StateIdle, 0, "", false}, {StateProcessing, 0, "", false},
	} {
		l := convergence{loaded: true, phase: c.phase, outcome: c.outcome}
		l.state.Run = c.run
		if l.follows() != c.want {
			t.Errorf("%+v: %t", c, !c.want)
		}
	}
}
