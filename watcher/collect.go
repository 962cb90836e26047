package watcher

import (
	"context"
	"time"

	"rouse/agentdb/ledger"
)

// NextHandover returns when a watch that collects hands over its files, given what it remembers.
// A watch that no daemon has looked at yet begins now. A time that has passed means at once.
func (w *Watch) NextHandover(st ledger.WatchState, now time.Time) time.Time {
	if st.Collected.IsZero() {
		st.Collected = now
	}
	return w.Collect.Next(st.Collected)
}

// beginCollecting reads until when files were handed over. The first time it is recorded, so that
// a restart does not move the next handover.
func (f *folder) beginCollecting(ctx context.Context) {
	if f.Collect.When == "" || !f.batch.collected.IsZero() || time.Now().Before(f.batch.retry) {
		return
	}

	st, _, err := f.w.ledger.WatchState(ctx, f.Job)
	if now := time.Now().Truncate(time.Millisecond); err == nil && st.Collected.IsZero() {
		st.Collected, st.Run = now, 0
		if st.Since.IsZero() {
			st.Since = now
		}
		err = f.writeUnlessStopped(func() error { return f.w.ledger.SaveWatchStates(ctx, st) })
	}
	if err != nil {
		f.collectFailed(ctx, err)
		return
	}
	f.batch.collected, f.batch.began = st.Collected, time.Now()
	f.publishHandover()
}

// collectDue returns when the collected files are handed over: at their time, and once all files
// that are there have been seen. It is zero while the folder is missing: its files wait for it.
func (f *folder) collectDue() time.Time {
	if f.root == "" || f.batch.collected.IsZero() {
		return f.batch.retry
	}
	due := f.Collect.Next(f.batch.collected)
	return latest(latest(due, f.partialBatchDue(latest(due, f.batch.began))), f.batch.retry)
}

// collect prepares the handover of as many files, and reports whether there is one. That nothing
// has come is recorded, too.
func (f *folder) collect(ctx context.Context, files int) bool {
	st, _, err := f.w.ledger.WatchState(ctx, f.Job)
	if err != nil {
		f.collectFailed(ctx, err)
		return false
	}

	// A handover that is late, for the machine was off, counts for all times it has missed.
	due := f.Collect.Next(f.batch.collected)
	st.Collected, st.Run = due, 0
	if now := time.Now(); now.Sub(due) > f.MaxWait+time.Minute {
		st.Collected = now.Truncate(time.Millisecond)
	}
	if files > 0 {
		f.batch.handover = &st
		return true
	}

	if err := f.writeUnlessStopped(func() error { return f.w.ledger.SaveWatchStates(ctx, st) }); err != nil {
		f.collectFailed(ctx, err)
		return false
	}
	f.event(ctx, "watch.collected", 0, map[string]any{"path": f.Path, "until": due})
	f.batch.collected = st.Collected
	f.publishHandover()
	return false
}

func (f *folder) collectFailed(ctx context.Context, err error) {
	f.batch.retry = time.Now().Add(time.Second)
	if ctx.Err() == nil {
		f.w.log.Error("when files are handed over could not be read or recorded; it is tried again", "job", f.Job, "path", f.Path, "error", err)
	}
}

// publishHandover shows the time of the next handover in the status.
func (f *folder) publishHandover() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Handover = f.Collect.Next(f.batch.collected)
}
