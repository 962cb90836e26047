package watcher

import (
	"context"
	"time"

	"rouse/internal/ledger/claim"
)

// NextHandover returns the time of the next handover of a collecting watch with a saved state. For
// a watch without a state, collecting begins now. If the returned time has passed, the handover is
// due at once.
func (w *Watch) NextHandover(st claim.WatchState, now time.Time) time.Time {
	if st.Collected.IsZero() {
		st.Collected = now
	}
	return w.Collect.Next(st.Collected)
}

// beginCollecting reads the time of the last handover. A new watch records the current time, so
// that a restart does not move its first handover.
func (f *candidates) beginCollecting(ctx context.Context) {
	if f.Collect.When == "" || !f.batch.collected.IsZero() || time.Now().Before(f.batch.retry) {
		return
	}

	st, _, err := f.w.ledger.Watches.State(ctx, f.Job)
	if now := time.Now().Truncate(time.Millisecond); err == nil && st.Collected.IsZero() {
		st.Collected, st.Run = now, 0
		if st.Since.IsZero() {
			st.Since = now
		}
		err = f.writeUnlessStopped(func() error { return f.w.ledger.Watches.Save(ctx, st) })
	}
	if err != nil {
		f.collectFailed(ctx, err)
		return
	}
	f.batch.collected, f.batch.began = st.Collected, time.Now()
	f.publishHandover()
}

// collectDue returns the time at which the collected files are handed over. That is the configured
// time, but not before all present files have been scanned. While the folder is missing, it returns
// the time of the next retry, which is zero unless an error occurred.
func (f *candidates) collectDue() time.Time {
	if f.root == "" || f.batch.collected.IsZero() {
		return f.batch.retry
	}
	due := f.Collect.Next(f.batch.collected)
	return latest(latest(due, f.partialBatchDue(latest(due, f.batch.began))), f.batch.retry)
}

// collect prepares the handover of the given number of files. If there are no files, it records an
// empty handover and returns false.
func (f *candidates) collect(ctx context.Context, files int) bool {
	st, _, err := f.w.ledger.Watches.State(ctx, f.Job)
	if err != nil {
		f.collectFailed(ctx, err)
		return false
	}

	// A late handover replaces all missed handovers, for example those while the machine was off.
	due := f.Collect.Next(f.batch.collected)
	st.Collected, st.Run = due, 0
	if now := time.Now(); now.Sub(due) > f.MaxWait+time.Minute {
		st.Collected = now.Truncate(time.Millisecond)
	}
	if files > 0 {
		f.batch.handover = &st
		return true
	}

	if err := f.writeUnlessStopped(func() error { return f.w.ledger.Watches.Save(ctx, st) }); err != nil {
		f.collectFailed(ctx, err)
		return false
	}
	f.event(ctx, "watch.collected", 0, map[string]any{"path": f.Path, "until": due})
	f.batch.collected = st.Collected
	f.publishHandover()
	return false
}

func (f *candidates) collectFailed(ctx context.Context, err error) {
	f.batch.retry = time.Now().Add(time.Second)
	if ctx.Err() == nil {
		f.w.log.Error("cannot read or record the time of the handover; trying again", "job", f.Job, "path", f.Path, "error", err)
	}
}

// publishHandover puts the time of the next handover into the status.
func (f *candidates) publishHandover() {
	f.report.mu.Lock()
	defer f.report.mu.Unlock()
	f.report.status.Handover = f.Collect.Next(f.batch.collected)
}
