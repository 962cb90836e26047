package watcher

import (
	"context"
	"errors"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

const followPause = 10 * time.Millisecond // least time between two reads of the ledger

// follow reads the ledger whenever it changes: it moves or deletes the files of finished runs,
// and notifies folders that converge about the end of theirs.
func (w *Watcher) follow(ctx context.Context) {
	for {
		changed := w.ledger.Changed() // asked for before reading, so that no change falls between
		var again <-chan time.Time
		if err := errors.Join(w.reportRuns(ctx), w.applyAfterActions(ctx)); err != nil && ctx.Err() == nil {
			w.log.Error("the files of finished runs could not be dealt with; it is tried again", "error", err)
			again = time.After(time.Second)
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-w.followNow:
		case <-again:
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(followPause):
		}
	}
}

// runStatus is what has become of a run.
type runStatus struct {
	run     int64
	outcome domain.Outcome // "" while it is not over
}

// followRun subscribes the folder to its run: to its end and, if it failed, to a retry.
func (f *folder) followRun() {
	run := int64(0)
	if l := &f.conv; l.phase == StateProcessing || l.phase == StateSettling || l.failed() {
		run = l.state.Run
	}

	f.mu.Lock()
	f.runStatus, f.runStatusNew = runStatus{}, false // whatever comes next is new
	f.mu.Unlock()
	f.w.mu.Lock()

	if run == 0 {
		delete(f.w.following, f)
	} else {
		f.w.following[f] = run
	}

	f.w.mu.Unlock()
	f.w.notifyFollow()
}

func (w *Watcher) unfollow(f *folder) {
	w.mu.Lock()
	delete(w.following, f)
	w.mu.Unlock()
}

// outcomeOf is how a run ended. One whose row was deleted counts as interrupted: nothing says
// that it did its work.
func (w *Watcher) outcomeOf(ctx context.Context, run int64) (domain.Outcome, error) {
	outcome, err := w.ledger.OutcomeOf(ctx, run)
	if errors.Is(err, ledger.ErrNotFound) {
		return domain.OutcomeInterrupted, nil
	}
	return outcome, err
}

// reportRuns notifies folders of what has become of their runs.
func (w *Watcher) reportRuns(ctx context.Context) error {
	// Copied, so that the lock is not held while the ledger is read.
	w.mu.Lock()
	follows := make(map[*folder]int64, len(w.following))
	for f, run := range w.following {
		follows[f] = run
	}

	w.mu.Unlock()
	for f, run := range follows {
		outcome, err := w.outcomeOf(ctx, run)
		if err != nil {
			return err
		}
		f.setRunStatus(runStatus{run, outcome})
	}

	return nil
}

func (f *folder) setRunStatus(said runStatus) {
	f.mu.Lock()
	news := f.runStatus != said
	f.runStatus, f.runStatusNew = said, f.runStatusNew || news
	f.mu.Unlock()
	if news {
		f.notify()
	}
}

// nextRunStatus is the latest status, and whether it came since the last call.
func (f *folder) nextRunStatus() (st runStatus, news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	news = f.runStatusNew
	f.runStatusNew = false
	return f.runStatus, news
}
