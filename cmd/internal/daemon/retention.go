package daemon

import (
	"context"
	"time"
)

// pruneEvery is how often history that is too old is removed.
const pruneEvery = 6 * time.Hour

// prune removes history that is older than its job keeps it, and what runs left lying.
func (d *Daemon) prune(ctx context.Context) error {
	for {
		n, err := d.ledger.Prune(ctx, time.Now(), d.Current().Config.KeepOf)
		switch {
		case err != nil && ctx.Err() == nil:
			d.log.Error("old history could not be removed; it is tried again", "error", err)
		case n > 0:
			d.log.Info("old history was removed", "runs", n)
		}

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
