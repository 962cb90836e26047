package daemon

import (
	"context"
	"time"
)

// pruneEvery is the interval at which history that is too old is removed.
const pruneEvery = 6 * time.Hour

// prune removes history that is older than its job's keep, and files that ended runs left behind.
func (d *Daemon) prune(ctx context.Context) error {
	for {
		// An error ends this pass, not the daemon: old history does no harm for another six hours.
		// Current is asked each time because a reload may have changed keep.
		n, err := d.ledger.Prune(ctx, time.Now(), d.Current().Config.KeepOf)
		switch {
		case err != nil && ctx.Err() == nil:
			d.log.Error("old history could not be removed; it is tried again", "error", err)
		case n > 0:
			d.log.Info("old history was removed", "runs", n)
		}

		// After Prune: it also removes the recordings of runs that are no longer kept.
		if err := d.runner.Sweep(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("lists of files of runs that are over could not be removed; it is tried again", "error", err)
		}

		t := time.NewTimer(pruneEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}
