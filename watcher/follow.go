package watcher

import (
	"context"
	"errors"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

const followPause = 10 * time.Millisecond // minimum time between two reads of the ledger

// follow moves or deletes the files of finished runs, whenever the ledger changes.
func (w *Watcher) follow(ctx context.Context) {
	for {
		changed := w.ledger.Changed() // get the channel before reading, so that no change is missed
		var again <-chan time.Time
		if err := w.applyAfterActions(ctx); err != nil && ctx.Err() == nil {
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

// outcomeOf returns the outcome of a run. If its row was deleted, the run counts as interrupted,
// because its success is not recorded.
func (w *Watcher) outcomeOf(ctx context.Context, run int64) (domain.Outcome, error) {
	outcome, err := w.ledger.Runs.OutcomeOf(ctx, run)
	if errors.Is(err, ledger.ErrNotFound) {
		return domain.OutcomeInterrupted, nil
	}
	return outcome, err
}
