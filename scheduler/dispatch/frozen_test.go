package dispatch_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/scheduler/dispatch"
)

// freezer has a configuration that changes right after each call of Freeze.
type freezer struct {
	executor
	l      *ledger.Ledger
	t      *testing.T
	config atomic.Int64
	did    chan int64
}

// Freeze implements dispatch.Executor.
func (f *freezer) Freeze() func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
	config := f.config.Add(1)
	if running, err := f.l.Runs.Running(f.t.Context()); err != nil || len(running) > 0 {
		f.t.Errorf("runs are on record as running before their configuration is fixed: %+v, %v", running, err)
	}
	return func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
		f.did <- config
		return success, nil
	}
}

// TestConfigurationOfStartedRuns checks that the configuration of an attempt is fixed before the
// attempt is recorded as running. It covers a run that is already queued and a later one.
func TestConfigurationOfStartedRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		f := &freezer{l: b.l, t: t, did: make(chan int64, 1)}
		f.ExecutorFunc = func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
			t.Error("an attempt was made by the configuration of later")
			return success, nil
		}
		b.o.Executor = f
		first := enqueue(t, b.l, "a", "j") // already queued when the dispatcher starts
		d, err := dispatch.New(b.o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- d.Run(ctx) }()
		b.stop = func() {
			cancel()
			if err := <-over; err != nil {
				t.Error(err)
			}
		}

		if did, now := <-f.did, f.config.Load(); did != now {
			t.Errorf("already queued: configuration %d, want %d", did, now)
		}
		if r := b.run(first); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("already queued: %+v", r)
		}

		synctest.Wait()
		enqueue(t, b.l, "a", "j")
		if did, now := <-f.did, f.config.Load(); did != now {
			t.Errorf("later: configuration %d, want %d", did, now)
		}
	})
}
