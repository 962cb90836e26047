package daemon

import (
	"context"
	"time"
)

// maintainEvery is the interval between two removals of old history.
const maintainEvery = 6 * time.Hour

// maintain removes old history and files of ended runs, and makes the daily backup.
func (d *Daemon) maintain(ctx context.Context) error {
	tick := time.NewTicker(maintainEvery)
	defer tick.Stop()
	for {
		d.prune(ctx)
		d.backUp(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// prune removes what is too old. An error ends this pass, not the daemon.
func (d *Daemon) prune(ctx context.Context) {
	var n int
	var err error
	if d.leading() { // one node does it for all
		// Current is asked each time because a reload may have changed keep.
		n, err = d.ledger.Prune(ctx, d.ledger.Now(), d.Current().Config.KeepOf)
	}
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

	if err := d.runner.PruneCheckouts(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn("old clones could not be removed; it is tried again", "error", err)
	}

	freed, err := d.ledger.GiveSpaceBack(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		d.log.Warn("the space of old history could not be given back; it is tried again", "error", err)
	case freed > 0:
		d.log.Info("the space of old history was given back", "bytes", freed)
	}
}

// backUp makes the daily backup of the ledger, and remembers for doctor whether that is possible.
func (d *Daemon) backUp(ctx context.Context) {
	made, err := d.ledger.BackUpDaily(ctx)
	if ctx.Err() != nil {
		return
	}

	d.backupProblem.Store(&err)
	switch {
	case err != nil:
		d.log.Error("the daily backup of the ledger could not be made; it is tried again", "error", err)
	case made:
		d.log.Info("the ledger was backed up")
	}
}

// keepRoomEvery is how often the disk is asked whether there is room again.
const keepRoomEvery = 2 * time.Second

// keepRoom keeps room on the disk of the home for the time when it is full, and has runs start again after that.
func (d *Daemon) keepRoom(ctx context.Context, reconsider func()) error {
	if d.ledger.ReadOnly() != nil {
		return nil
	}

	tick := time.NewTicker(keepRoomEvery)
	defer tick.Stop()
	var was, told string
	for {
		problem := ""
		if err := d.ledger.KeepReserve(); err != nil {
			problem = err.Error()
		}
		if problem != told && problem != "" {
			d.log.Warn("runs that are on when the disk is full may not be recorded", "problem", problem)
		}
		now := d.ledger.NoRoom()
		switch {
		case now == was:
		case now != "":
			d.log.Error("nothing new starts", "problem", now)
		default:
			d.log.Info("there is room on the disk again, and runs start again")
		}
		if now != was {
			reconsider()
		}
		was, told = now, problem

		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
