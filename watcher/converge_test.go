package watcher_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/runs"
	"rouse/watcher"
)

func (b *bench) folder() watcher.Watch {
	w := b.inbox()
	w.Mode = watcher.ModeConverge
	return w
}

// changes returns the changes that the runs of a job received, oldest first.
func (b *bench) changes(job string) []ledger.TriggerDetail {
	b.t.Helper()
	runs, err := b.ledger.Runs.List(b.t.Context(), runs.Filter{Job: job, Limit: 10_000})
	if err != nil {
		b.t.Fatal(err)
	}

	out := make([]ledger.TriggerDetail, len(runs))
	for i, r := range runs {
		if err := json.Unmarshal(r.Detail, &out[len(runs)-1-i]); err != nil {
			b.t.Fatal(err)
		}
	}

	return out
}

func (b *bench) end(run int64, outcome domain.Outcome) {
	b.t.Helper()
	_, a, err := b.ledger.StartAttempt(b.t.Context(), run)
	if err == nil {
		err = b.ledger.Finish(b.t.Context(), a, ledger.Result{Outcome: outcome})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) state(want watcher.State) {
	b.t.Helper()
	b.what = string(want)
	b.until(func() bool { return b.status("in").State == want })
}

// TestConvergeStates checks that the status shows all states of a folder in mode converge (OSA-91).
func TestConvergeStates(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-91")
	idle, debouncing, processing, settling := watcher.State(row.Quote("idle")), watcher.State(row.Quote("debouncing")), watcher.State(row.Quote("processing")), watcher.State(row.Quote("settling"))
	b := newBench(t)
	w := b.folder()
	w.Settle, b.quiet = 300*time.Millisecond, 300*time.Millisecond
	b.start(w)
	b.state(idle)
	b.write("inbox/a.csv", "1")
	b.state(debouncing)
	b.state(processing)
	if st := b.status("in"); st.Mode != watcher.ModeConverge || st.Round != 1 {
		t.Errorf("%+v", st)
	}

	run, err := b.ledger.Runs.Get(t.Context(), 1)
	if err != nil || run.Trigger != domain.TriggerWatch || run.Agent != "a" {
		t.Fatalf("%+v (%v)", run, err)
	}
	if d := b.changes("in")[0]; d.Folder != b.path("inbox") || d.Round != 1 || !slices.Equal(d.Changes.Added, []string{"a.csv"}) || d.Changes.Removed == nil {
		t.Errorf("%s", run.Detail)
	}

	// The next scan handles changes during a run or while it settles.
	again := func() bool {
		if st := b.status("in").State; st == watcher.StateDebouncing || st == watcher.StateIdle {
			t.Fatalf("it is %s between two runs", st)
		}
		return b.count("in") == 2
	}
	b.write("inbox/b.csv", "1")
	b.end(1, domain.OutcomeSuccess)
	b.what = "the second run"
	b.until(again)
	if d := b.changes("in")[1]; d.Round != 2 || !slices.Equal(d.Changes.Added, []string{"b.csv"}) {
		t.Errorf("%+v", d.Changes)
	}

	b.state(processing)
	b.end(2, domain.OutcomeSuccess)
	b.state(settling)
	b.state(idle)
	if st := b.status("in"); st.Round != 0 || b.count("in") != 2 {
		t.Errorf("%+v, %d runs", st, b.count("in"))
	}
}

// TestConvergeAwaitsTries checks that a run that waits for a person or another try has not ended.
func TestConvergeAwaitsTries(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start(b.folder())
	b.write("inbox/a.csv", "1")
	b.state(watcher.StateProcessing)
	_, a, err := b.ledger.StartAttempt(t.Context(), 1)
	if err == nil {
		err = b.ledger.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeError, RetryAt: time.Now()})
	}
	if err != nil {
		t.Fatal(err)
	}

	b.write("inbox/b.csv", "1")
	b.end(1, domain.OutcomeSuccess)
	b.what = "the next run"
	b.until(func() bool { return b.count("in") == 2 })
	if d := b.changes("in")[1]; d.Round != 2 || !slices.Equal(d.Changes.Added, []string{"b.csv"}) {
		t.Errorf("%+v %+v", d, d.Changes)
	}
}

// TestConvergeTellsOfMany checks that a run receives only the first of very many changes by name.
func TestConvergeTellsOfMany(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.folder()
	b.start(w)
	if err := os.Mkdir(b.path("many"), 0o755); err != nil {
		t.Fatal(err)
	}

	const n = 1200
	for i := range n {
		b.write(fmt.Sprintf("many/%04d.csv", i), "")
	}

	b.stop()
	if err := errors.Join(os.Remove(b.path("inbox")), os.Rename(b.path("many"), b.path("inbox"))); err != nil {
		t.Fatal(err)
	}

	b.start(w)
	b.state(watcher.StateProcessing)
	if c := b.changes("in")[0].Changes; len(c.Added) != 1000 || c.More != n-1000 || c.Added[999] != "0999.csv" {
		t.Errorf("%d names, %d more", len(c.Added), c.More)
	}
}

// TestTriggerWithoutWatcher checks that a folder can be triggered without a watcher, using only the
// ledger (OSA-94). The folder must be idle, and the folder of another watch inside it is excluded.
// A later watcher continues with it.
func TestTriggerWithoutWatcher(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-94")
	b := newBench(t)
	w := b.folder()
	w.Recursive = true
	inner := watcher.Watch{Job: "inner", Path: b.path("inbox/inner")}
	b.write("inbox/a.csv", "1")
	b.write("inbox/inner/b.csv", "1")
	a, err := watcher.Trigger(t.Context(), b.ledger, []watcher.Watch{w, inner}, "in")
	if err != nil || !a.New {
		t.Fatalf("%+v (%v)", a, err)
	}
	if d := b.changes("in")[0]; d.Round != 1 || !slices.Equal(d.Changes.Added, []string{"a.csv"}) {
		t.Errorf("%+v", d.Changes)
	}
	if _, err := watcher.Trigger(t.Context(), b.ledger, []watcher.Watch{w, inner}, "in"); !errors.Is(err, watcher.ErrBusy) || !strings.Contains(err.Error(), row.Quote("it can be triggered once it is idle")) {
		t.Errorf("%v", err)
	}

	b.end(a.Run, domain.OutcomeSuccess)
	again, err := watcher.Trigger(t.Context(), b.ledger, []watcher.Watch{w, inner}, "in") // no watcher is there to let it settle
	if err != nil || !again.New || b.changes("in")[1].Round != 1 {
		t.Errorf("after the first: %+v (%v)", again, err)
	}

	b.end(again.Run, domain.OutcomeSuccess)
	for _, job := range []string{"inner", "none"} {
		if _, err := watcher.Trigger(t.Context(), b.ledger, []watcher.Watch{w, inner}, job); err == nil {
			t.Errorf("%s was triggered", job)
		}
	}

	b.write("inbox/c.csv", "1")
	b.start(w, inner)
	b.what = "the next round"
	b.until(func() bool { return b.count("in") == 3 })
	if d := b.changes("in")[2]; d.Round != 2 || !slices.Equal(d.Changes.Added, []string{"c.csv"}) {
		t.Errorf("%+v", d.Changes)
	}
	if err := os.RemoveAll(b.path("inbox")); err != nil {
		t.Fatal(err)
	}
	b.state(watcher.State(row.Quote("missing")))
}

// TestConvergeRounds checks that each run receives the changes, and that the number of runs is
// limited (OSA-93).
func TestConvergeRounds(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-93")
	b := newBench(t)
	b.start(b.folder())
	most := row.Number("5")
	b.write("inbox/0.csv", "1")
	for i := range most {
		b.what = fmt.Sprint("run ", i+1)
		b.until(func() bool { return b.count("in") == i+1 })
		if d := b.changes("in")[i]; d.Round != i+1 || !slices.Equal(d.Changes.Added, []string{fmt.Sprint(i, ".csv")}) {
			t.Errorf("run %d: %d, %+v", i+1, d.Round, d.Changes)
		}
		b.write(fmt.Sprint("inbox/", i+1, ".csv"), "1")
		b.end(int64(i+1), domain.OutcomeSuccess)
	}
	b.state(watcher.StateIdle)
	items, err := b.ledger.Inbox.List(t.Context())
	if err != nil || b.count("in") != most || len(items) != 1 || !strings.Contains(items[0].Title, row.Quote("stopped: its folder still changes")) {
		t.Errorf("%d runs, %+v (%v)", b.count("in"), items, err)
	}
}

// TestConvergeProperty changes files, ends runs and stops the watcher at random. The changes that
// runs received, in their order, must lead to the final state of the folder. No loop may have more
// than five runs.
func TestConvergeProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t)
		defer m.stop()

		m.watch.Mode, m.watch.Existing, m.watch.MaxWait = watcher.ModeConverge, watcher.ExistingProcess, 200*time.Millisecond
		m.quiet = 10 * time.Millisecond
		m.start(m.watch)

		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			m.step(rt)
			m.finishSome(rt)
		}

		if m.halt == nil {
			m.start(m.watch)
		}

		m.outcome = domain.OutcomeSuccess
		m.what = "no run is on"
		m.until(func() bool { return m.status("in").State == watcher.StateIdle })
		m.write("inbox/last.csv", "so that a run which was not done is followed by another")
		m.what = "the folder comes to rest"
		m.until(func() bool {
			last, ok := m.told(rt)["last.csv"]
			return ok && last && m.status("in").State == watcher.StateIdle
		})
		there := map[string]bool{}
		for path := range m.files() {
			rel, err := filepath.Rel(m.path("inbox"), path)
			m.must(err)
			there[filepath.ToSlash(rel)] = true
		}
		if told := m.told(rt); !maps.Equal(told, there) {
			rt.Fatalf("runs were told of %v, and %v is there", told, there)
		}
	})
}

func (m *model) finishSome(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "finish") > 0 {
		return
	}
	m.outcome = rapid.SampledFrom([]domain.Outcome{domain.OutcomeSuccess, domain.OutcomeNothing, domain.OutcomeError, domain.OutcomeCancelled}).Draw(t, "outcome")
	m.finish()
	m.outcome = ""
}

// told returns the files according to the successful runs and the adopted changes.
func (m *model) told(t *rapid.T) map[string]bool {
	events, err := m.ledger.Events.List(m.t.Context(), event.Filter{Limit: 100_000})
	m.must(err)
	runs, err := m.ledger.Runs.List(m.t.Context(), runs.Filter{Limit: 10_000}) // read after the events, so that each event has its run
	m.must(err)
	outcomes := map[int64]ledger.Run{}
	for _, r := range runs {
		outcomes[r.ID] = r
	}

	there := map[string]bool{}
	apply := func(c *ledger.Changes) {
		for _, name := range c.Added {
			there[name] = true
		}
		for _, name := range c.Removed {
			delete(there, name)
		}
	}

	for _, e := range events {
		switch e.Kind {
		case "run.queued":
			var d ledger.TriggerDetail
			m.must(json.Unmarshal(outcomes[e.Run].Detail, &d))
			if d.Round < 1 || d.Round > 5 || len(d.Changes.Added)+len(d.Changes.Removed)+len(d.Changes.Modified) == 0 {
				t.Fatalf("run %d: %s", e.Run, outcomes[e.Run].Detail)
			}

			if outcomes[e.Run].Outcome.Done() {
				apply(d.Changes)
			}
		case "watch.adopted":
			var data struct{ Changes ledger.Changes }
			m.must(json.Unmarshal(e.Data, &data))
			apply(&data.Changes)
		}
	}

	return there
}
