package watcher

import (
	"io/fs"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agentdb/ledger"
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

// Each change restarts the window of a folder, but no longer than it may be waited for; while a run is on, or settles, the change may be
// its own.
func TestNoteChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(&Watcher{}, Watch{Mode: ModeConverge, Settle: time.Second, MaxWait: 3 * time.Second})
		began := time.Now()
		for i, want := range []time.Duration{time.Second, 1900 * time.Millisecond, 2800 * time.Millisecond, 3 * time.Second} {
			f.noteChange()
			if got := f.conv.checkAt.Sub(began); got != want || f.conv.phase != StateDebouncing {
				t.Errorf("change %d: %s, looked at after %s, want %s", i, f.conv.phase, got, want)
			}
			time.Sleep(900 * time.Millisecond)
		}

		for _, phase := range []State{StateProcessing, StateSettling} {
			f.setPhase(phase, began)
			if f.noteChange(); f.conv.phase != phase || f.conv.checkAt != began {
				t.Errorf("%s: %+v", phase, f.conv)
			}
		}
	})
}

// A decision is put off for as long as a folder may be waited for, and never beyond that.
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
		f.conv = convergence{phase: StateDebouncing, since: noon, checkAt: noon}
		if put := f.postpone(noon.Add(c.now), noon.Add(c.until)); put != c.put || f.conv.checkAt.Sub(noon) != c.at {
			t.Errorf("%s: %t, looked at after %s", name, put, f.conv.checkAt.Sub(noon))
		}
	}

	f := newFolder(&Watcher{}, Watch{Settle: settle, MaxWait: maxWait})
	if put := f.postpone(time.Now(), time.Now().Add(settle)); !put || f.conv.phase != StateDebouncing {
		t.Errorf("an idle folder: %t, %s", put, f.conv.phase)
	}
}

// A change is waited for until it is a window old; a time of tomorrow says nothing.
func TestStillChanging(t *testing.T) {
	t.Parallel()
	for ago, want := range map[time.Duration]bool{0: true, 1: true, time.Second - 1: true, time.Second: false, time.Hour: false, -1: false, -time.Hour: false} {
		f := newFolder(&Watcher{}, Watch{Settle: time.Second, MaxWait: time.Minute})
		f.conv = convergence{phase: StateDebouncing, since: noon}
		if got := f.stillChanging(noon, noon.Add(-ago)); got != want || got && f.conv.checkAt.Sub(noon) != time.Second-ago {
			t.Errorf("changed %s ago: %t, looked at again after %s", ago, got, f.conv.checkAt.Sub(noon))
		}
	}
}

// What was found in a polled folder is decided about once two scans agree.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	for degraded, want := range map[string][]bool{"": {false, false, false, false}, "it is far away": {true, false, true, false}} {
		f := newFolder(&Watcher{}, Watch{Settle: time.Second, MaxWait: time.Minute})
		f.conv = convergence{phase: StateDebouncing, since: noon}
		for i, print := range []string{"one", "one", "two", "two"} {
			if got := f.unconfirmed(noon, print, &walk{degraded: degraded}); got != want[i] {
				t.Errorf("%q, scan %d: %t", degraded, i, got)
			}
		}
	}
}

// A run that was tried again is the loop's once more, whether the watcher was told of it or not.
func TestRetriedRunIsAwaited(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	if again, err := f.retried(t.Context()); again || err != nil {
		t.Errorf("without a run: %t, %v", again, err)
	}
	a, err := f.dispatch(t.Context(), tree{{path: "b"}}, nil, &ledger.Changes{})
	d.must(err)
	d.end(a.Run, domain.OutcomeError)
	if again, err := f.retried(t.Context()); again || err != nil {
		t.Errorf("after it failed: %t, %v", again, err)
	}

	f.setPhase(StateIdle, time.Time{})
	if _, err := d.w.ledger.Retry(t.Context(), a.Run); err != nil {
		t.Fatal(err)
	}
	if again, err := f.retried(t.Context()); !again || err != nil || f.conv.phase != StateProcessing || d.w.following[f] != a.Run {
		t.Errorf("tried again: %t, %v, %s", again, err, f.conv.phase)
	}

	d.must(d.w.ledger.Close())
	if _, err := f.retried(t.Context()); err == nil {
		t.Error("what the ledger does not say is taken for an end")
	}
}

// What could not be recorded is tried again, after a moment, with what the ledger holds by then.
func TestEvaluateAgainWhatFailed(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	d.must(d.w.ledger.Close())
	before := time.Now()
	f.conv.checkAt = time.Time{}
	f.evaluate(t.Context(), &walk{files: []sighting{{d.path("inbox/b.csv"), stamp{size: 1}}}})
	if f.conv.loaded || f.conv.checkAt.Before(before.Add(time.Second)) || f.conv.checkAt.After(time.Now().Add(time.Second)) {
		t.Errorf("%+v", f.conv)
	}
}

// Nothing is decided while a run is on, or before it is time.
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
		f.setPhase(c.phase, time.Now().Add(c.in))
		long := noon.UnixNano()
		f.evaluate(t.Context(), &walk{files: []sighting{{d.path("inbox/b.csv"), stamp{size: 1, modified: long, changed: long}}}})
		if c.phase == StateIdle && d.runs() == 0 { // what went has just gone
			f.MaxWait = 0
			f.evaluate(t.Context(), &walk{files: []sighting{{d.path("inbox/b.csv"), stamp{size: 1, modified: long, changed: long}}}})
		}
		if got := d.runs(); got != c.runs {
			t.Errorf("%s, due in %s: %d runs", c.phase, c.in, got)
		}
	}
}

// A loop ends after its last round, unless its run failed: that has ended it, and what is told then begins another.
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
		a, err := f.dispatch(t.Context(), tree{{path: "a.csv"}}, nil, &ledger.Changes{})
		d.must(err)
		d.end(a.Run, c.outcome)
		f.conv.state.Round, f.conv.outcome, f.conv.runPredates = c.round, c.outcome, true
		f.setPhase(StateSettling, time.Now())
		long := noon.UnixNano()
		f.evaluate(t.Context(), &walk{files: []sighting{{d.path("inbox/a.csv"), stamp{modified: long}}, {d.path("inbox/b.csv"), stamp{size: 1, modified: long, changed: long}}}})
		runs, err := d.w.ledger.Runs(t.Context(), ledger.RunFilter{Job: "in", Limit: 10})
		d.must(err)
		if len(runs) != c.runs || f.conv.state.Round != c.now {
			t.Errorf("%+v: %d runs, round %d", c, len(runs), f.conv.state.Round)
		}
	}
}
