package watcher_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/runs"
	"rouse/watcher"
	"rouse/watcher/after"
)

// collecting returns a watch that hands over its files once an hour.
func (b *bench) collecting() watcher.Watch {
	w := b.inbox()
	w.Mode, w.Existing, w.MaxFiles = watcher.ModeBatch, watcher.ExistingProcess, 10_000
	w.Collect = watcher.Collect{When: "every 1h", Next: func(after time.Time) time.Time { return after.Add(time.Hour) }}
	w.OnSuccess = after.Rule{Action: "move", Dir: b.path("done")}
	return w
}

// handedOver returns the files of each run, the oldest run first.
func (b *bench) handedOver() (out []string) {
	b.t.Helper()
	runs, err := b.ledger.Runs.List(b.t.Context(), runs.Filter{Job: "in"})
	b.must(err)
	for _, r := range slices.Backward(runs) {
		var d ledger.TriggerDetail
		b.must(json.Unmarshal(r.Detail, &d))
		var names []string
		for _, f := range d.Files {
			names = append(names, f.Name)
		}
		slices.Sort(names)
		out = append(out, strings.Join(names, " "))
	}
	return out
}

// overdue moves the next handover into the past.
func (b *bench) overdue() {
	b.t.Helper()
	st, _, err := b.ledger.Watches.State(b.t.Context(), "in")
	b.must(err)
	st.Collected = time.Now().Add(-3 * time.Hour)
	b.must(b.ledger.Watches.Save(b.t.Context(), st))
}

// TestCollect checks that all files go to one run, once, also after restarts and missed handovers.
func TestCollect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.what = "collecting"
	w := b.collecting()
	b.start(w)
	for _, name := range []string{"a", "b", "c"} {
		b.write("inbox/"+name, name)
	}
	b.until(func() bool { return b.status("in").Waiting == 3 })
	if at := b.status("in").Handover; b.count("in") != 0 || time.Until(at) < 50*time.Minute {
		t.Fatalf("%d runs before the time, which is %s", b.count("in"), at)
	}

	// A restart keeps the time and finds the files again.
	first := b.status("in").Handover
	b.stop()
	b.start(w)
	b.until(func() bool { return b.status("in").Waiting == 3 })
	if at := b.status("in").Handover; !at.Equal(first) || b.count("in") != 0 {
		t.Fatalf("%d runs, the time is %s and was %s", b.count("in"), at, first)
	}

	// The machine was off at the time of the handover, and another file arrived.
	b.stop()
	b.overdue()
	b.write("inbox/d", "d")
	b.outcome = domain.OutcomeSuccess
	b.start(w)
	b.until(func() bool { return b.has("done/a") && b.has("done/b") && b.has("done/c") && b.has("done/d") })
	if got := b.handedOver(); !slices.Equal(got, []string{"a b c d"}) {
		t.Fatalf("%q", got)
	}

	// Later files wait for the next handover, also after a restart.
	b.write("inbox/e", "e")
	b.until(func() bool { return b.status("in").Waiting == 1 })
	b.stop()
	b.start(w)
	b.until(func() bool { return b.status("in").Waiting == 1 })
	if at := b.status("in").Handover; b.count("in") != 1 || time.Until(at) < 50*time.Minute {
		t.Errorf("%d runs, the next handover is %s", b.count("in"), at)
	}
}

// TestCollectNothing checks that a handover without files starts no run and is recorded.
func TestCollectNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.what = "collecting nothing"
	w := b.collecting()
	b.start(w)
	b.until(func() bool { return !b.status("in").Handover.IsZero() })
	b.stop()
	b.overdue()
	b.start(w)
	b.until(func() bool {
		events, err := b.ledger.Events.List(t.Context(), event.Filter{Job: "in"})
		b.must(err)
		return slices.ContainsFunc(events, func(e ledger.Event) bool { return e.Kind == "watch.collected" })
	})
	b.until(func() bool { return time.Until(b.status("in").Handover) > 50*time.Minute })
	st, _, err := b.ledger.Watches.State(t.Context(), "in")
	if b.must(err); st.Run != 0 || b.count("in") != 0 {
		t.Errorf("%+v, %d runs", st, b.count("in"))
	}

	b.write("inbox/a", "a")
	b.until(func() bool { return b.status("in").Waiting == 1 })
	found, err := watcher.Explain(t.Context(), b.ledger, []watcher.Watch{w}, nil, b.path("inbox/a"))
	if err != nil || len(found) != 1 || found[0].Verdict != watcher.VerdictWaits || !strings.Contains(found[0].Reason, "handed over with all files that arrive before") {
		t.Errorf("%+v %v", found, err)
	}
}

// TestCollectMissingFolder checks that a handover waits for a missing folder.
func TestCollectMissingFolder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.what = "collecting from a folder that is missing"
	w := b.collecting()
	w.Path = b.path("later")
	b.start(w)
	b.until(func() bool { return !b.status("in").Handover.IsZero() })
	b.stop()
	b.overdue()
	b.start(w)
	// Create the folder with its file: an empty folder would be handed over without files.
	b.write("made/a", "a")
	b.must(os.Rename(b.path("made"), b.path("later")))
	b.until(func() bool { return b.count("in") == 1 })
	if got := b.handedOver(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q", got)
	}
}
