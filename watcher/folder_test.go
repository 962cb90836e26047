package watcher_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
	"rouse/watcher"
)

func (b *bench) inbox() watcher.Watch {
	b.t.Helper()
	if err := os.MkdirAll(b.path("inbox"), 0o755); err != nil {
		b.t.Fatal(err)
	}
	return watcher.Watch{Job: "in", Agent: "a", Path: b.path("inbox"), Settle: 60 * time.Millisecond}
}

// TestDetail checks that a run contains the path, name, size, hash and time of its file.
func TestDetail(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start(b.inbox())
	b.write("inbox/a.csv", "1")
	b.until(func() bool { return b.count("in") == 1 })
	runs, err := b.ledger.Runs.List(t.Context(), runs.Filter{})
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{`"name":"a.csv"`, `"size":1`, `"hash":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"`, `"mod_time"`} {
		if !strings.Contains(string(runs[0].Detail), want) {
			t.Errorf("%s is missing in %s", want, runs[0].Detail)
		}
	}

	if runs[0].Trigger != domain.TriggerWatch || runs[0].Agent != "a" {
		t.Errorf("%+v", runs[0])
	}
}

// TestStates checks the states of a watch in mode per_file (OSA-91).
func TestStates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.inbox()
	w.Settle = 300 * time.Millisecond
	b.start(w)
	if st := b.status("in"); st.State != watcher.StateIdle || st.Subscriptions != 1 {
		t.Errorf("%+v", st)
	}

	b.write("inbox/a.csv", "1")
	b.what = "debouncing"
	b.until(func() bool { return b.status("in").State == watcher.StateDebouncing })
	b.what = "a run"
	b.until(func() bool { return b.count("in") == 1 })
	if _, _, err := b.ledger.StartAttempt(t.Context(), 1); err != nil {
		t.Fatal(err)
	}

	b.until(func() bool { return b.status("in").State == watcher.StateProcessing })
	if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: 1, Number: 1}, ledger.Result{Outcome: domain.OutcomeSuccess}); err != nil {
		t.Fatal(err)
	}

	b.until(func() bool { return b.status("in").State == watcher.StateIdle })
}

func TestEnqueueFile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.inbox()
	b.write("inbox/a.csv", "1")
	one, err := watcher.EnqueueFile(t.Context(), b.ledger, w, b.path("inbox/a.csv"), false)
	if err != nil || !one.New {
		t.Fatalf("%+v (%v)", one, err)
	}

	two, err := watcher.EnqueueFile(t.Context(), b.ledger, w, b.path("inbox/a.csv"), false)
	if err != nil || !two.Blocked || two.Run != one.Run {
		t.Errorf("%+v (%v)", two, err)
	}

	for name, want := range map[string]string{"inbox/none": "cannot be read", "inbox": "is not a file"} {
		if _, err := watcher.EnqueueFile(t.Context(), b.ledger, w, b.path(name), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	b.start(w)
	b.write("inbox/b.csv", "2")
	b.until(func() bool { return b.count("in") >= 2 })
	if n := b.count("in"); n != 2 {
		t.Errorf("%d runs", n)
	}
}

// TestSetRefuses checks that Set returns an error for an invalid watch and keeps all old watches.
func TestSetRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start(b.inbox())
	bad := b.inbox()
	bad.Include = []string{"["}
	if err := b.watcher.Set(t.Context(), []watcher.Watch{bad}); err == nil {
		t.Fatal("a broken pattern was taken")
	}

	b.write("inbox/a.csv", "1")
	b.until(func() bool { return b.count("in") == 1 })
}

// TestBurst checks that each of several hundred files in a burst gets exactly one run. The largest
// file is longer than one read.
func TestBurst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.inbox()
	w.Settle = 500 * time.Millisecond // allows for stalls of the machine during the burst
	b.start(w)
	const n = 700 // more than are claimed in one transaction
	for i := range n {
		b.write(fmt.Sprintf("inbox/f%d.csv", i), fmt.Sprint(i))
	}

	b.write("inbox/long.csv", strings.Repeat("x", 9<<20))
	b.what = "all runs"
	b.until(func() bool {
		c, err := b.ledger.Runs.Counts(context.WithoutCancel(t.Context()))
		return err == nil && c.Queued >= n+1
	})
	runs, err := b.ledger.Runs.List(t.Context(), runs.Filter{Limit: 2 * n})
	if err != nil {
		t.Fatal(err)
	}

	seen := map[string]bool{}
	for _, r := range runs {
		seen[string(r.Detail)] = true
	}
	if len(runs) != n+1 || len(seen) != n+1 {
		t.Errorf("%d runs of %d files", len(runs), len(seen))
	}
}

// TestLinkLoops checks that a walk of folders that link to each other ends and finds each file
// once.
func TestLinkLoops(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.inbox()
	w.Recursive, w.FollowSymlinks, w.Include = true, true, []string{"**/d1/**", "*.never"}
	const n = 20
	for i := range n {
		b.write(fmt.Sprintf("inbox/d%d/f%d.csv", i, i), "1")
	}

	for i := range n {
		for j := range n {
			if err := os.Symlink(b.path(fmt.Sprintf("inbox/d%d", j)), b.path(fmt.Sprintf("inbox/d%d/to%d", i, j))); err != nil {
				t.Skip("links cannot be made here")
			}
		}
	}

	b.start(w)
	b.what = "each file has its run"
	b.until(func() bool { return b.count("in") >= n })
	if got := b.count("in"); got != n {
		t.Errorf("%d runs of %d files", got, n)
	}
}
