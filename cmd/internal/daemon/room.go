package daemon

import (
	"context"
	"time"
)

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
		told = problem

		now := d.ledger.NoRoom()
		if now != was {
			if now != "" {
				d.log.Error("nothing new starts", "problem", now)
			} else {
				d.log.Info("there is room on the disk again, and runs start again")
			}
			reconsider()
		}
		was = now

		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
