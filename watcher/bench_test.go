package watcher_test

import (
	"cmp"
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
	"rouse/watcher"
)

// TestMain limits the property tests unless -rapid.checks is set, and runs more waiting tests in
// parallel than there are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(testsPerProcessor*runtime.GOMAXPROCS(0))); err != nil {
		os.Exit(2)
	}

	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		if err := f.Value.Set("6"); err != nil {
			os.Exit(2)
		}
	}

	os.Exit(m.Run())
}

// patience is the timeout for expected events.
const patience = 3 * time.Minute

// bench is a folder with a ledger and a watcher. It ends the runs itself.
type bench struct {
	t       *testing.T
	base    string
	ledger  *ledger.Ledger
	watcher *watcher.Watcher
	outcome domain.Outcome // outcome of runs; "": they stay queued
	what    string         // current activity
	quiet   time.Duration  // wait after the runs of a folder in mode converge
	halt    func()
}

func newBench(t *testing.T) *bench {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	b := &bench{t: t, base: base, ledger: watcher.OpenLedger(t, base)}
	t.Cleanup(func() { b.ledger.Close() })
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.base, filepath.FromSlash(name)) }

// start runs a watcher until stop is called or the test ends.
func (b *bench) start(watches ...watcher.Watch) {
	b.t.Helper()
	b.startWith(watcher.Options{}, watches...)
}

func (b *bench) startWith(o watcher.Options, watches ...watcher.Watch) {
	b.t.Helper()
	o.Ledger = b.ledger
	w, err := watcher.New(o)
	if err != nil {
		b.t.Fatal(err)
	}

	w.SetRunSettle(cmp.Or(b.quiet, 50*time.Millisecond))
	if err := w.Set(b.t.Context(), watches); err != nil {
		b.t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	over := make(chan error, 1)
	go func() { over <- w.Run(ctx) }()
	b.halt = func() {
		cancel()
		if err := <-over; err != nil {
			b.t.Error(err)
		}
	}

	b.t.Cleanup(b.stop)
	b.watcher = w
	select {
	case <-w.Ready():
	case <-time.After(patience):
		b.t.Fatal("the watcher is not ready")
	}
}

func (b *bench) stop() {
	if b.halt != nil {
		b.halt()
		b.halt = nil
	}
}

// until waits for a condition and checks it after every change of the ledger. In the meantime it
// ends queued runs.
func (b *bench) until(ok func() bool) {
	b.t.Helper()
	deadline := time.After(patience)
	for {
		changed := b.ledger.Changed()
		b.finish()
		if ok() {
			return
		}

		select {
		case <-changed:
		case <-time.After(5 * time.Millisecond): // the move of a file does not change the ledger
		case <-deadline:
			b.t.Fatalf("%s: it did not happen; status: %+v", b.what, b.watcher.Status(b.t.Context()))
		}
	}
}

func (b *bench) finish() {
	b.t.Helper()
	if b.outcome == "" {
		return
	}

	runs, err := b.ledger.Runs.Claimable(b.t.Context(), time.Now(), 0, 100)
	if err != nil {
		b.t.Fatal(err)
	}

	for _, r := range runs {
		_, a, err := b.ledger.StartAttempt(b.t.Context(), r.ID)
		if err == nil {
			err = b.ledger.Finish(b.t.Context(), a, ledger.Result{Outcome: b.outcome})
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// count returns the number of runs of a job.
func (b *bench) count(job string) int {
	b.t.Helper()
	runs, err := b.ledger.Runs.List(b.t.Context(), runs.Filter{Job: job, Limit: 100_000})
	if err != nil {
		b.t.Fatal(err)
	}
	return len(runs)
}

func (b *bench) status(job string) watcher.Status {
	for _, st := range b.watcher.Status(b.t.Context()) {
		if st.Job == job {
			return st
		}
	}
	return watcher.Status{}
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(b.path(name), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) has(name string) bool {
	_, err := os.Lstat(b.path(name))
	return err == nil
}
