// Package upkeep maintains a home while its daemon runs. It removes old history, backs up the
// ledger, detects replaced files and full disks, and fetches calendars. It also finds jobs that
// are overdue or can start again.
package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"rouse/agent"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/cluster"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/reload"
	"rouse/cmd/internal/why"
	"rouse/internal/ledger"
	"rouse/internal/storage/sqlite"
)

// Keeper maintains one home.
type Keeper struct {
	Home      string
	Setup     func() *plan.Setup // returns the configuration in force
	Ledger    *ledger.Ledger
	Databases *pool.Pool
	Runner    *agent.Runner
	Notifier  *notify.Notifier
	Explainer *why.Explainer
	Checker   *doctor.Checker
	Nodes     *cluster.Self
	Reloader  *reload.Reloader
	Logger    *slog.Logger

	backupProblem atomic.Pointer[error] // error of the last daily backup; nil before the first attempt
}

// BackupProblem returns the error of the last daily backup of the ledger, or nil.
func (k *Keeper) BackupProblem() error {
	if problem := k.backupProblem.Load(); problem != nil {
		return *problem
	}
	return nil
}

// WatchLedger returns an error if the ledger is damaged, because runs cannot be recorded then.
func (k *Keeper) WatchLedger(ctx context.Context) error {
	select {
	case <-k.Ledger.Damaged():
		return k.Ledger.ReadOnly()
	case <-ctx.Done():
		return nil
	}
}

// lookAfter is the interval at which open databases are compared with their files.
const lookAfter = 2 * time.Second

// WatchFiles returns an error if the ledger's file is deleted, replaced or truncated. It does not
// continue with another ledger, because the parts remember the lost one. A restart asks the owner.
func (k *Keeper) WatchFiles(ctx context.Context) error {
	tick := time.NewTicker(lookAfter)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}

		// CheckFiles logs its findings and blocks further runs of the agent.
		k.Databases.CheckFiles(ctx)

		err := k.Ledger.CheckFile(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.As(err, new(*sqlite.LostError)):
			k.Logger.Error("the daemon stops", "error", err)
			k.tellLost(ctx, err)
			return err
		default:
			k.Logger.Warn("the ledger's file could not be looked at; it is tried again", "error", err)
		}
	}
}

// tellLost notifies the owner without the outbox, which is lost with the ledger.
func (k *Keeper) tellLost(ctx context.Context, lost error) {
	for channel := range k.Setup().Plan.Channels {
		if err := k.Notifier.Send(ctx, channel, "rouse stops", lost.Error()+". See: rouse doctor"); err != nil {
			k.Logger.Warn("that the ledger is lost could not be told", "channel", channel, "error", err)
		}
	}
}

// maintainEvery is the interval between removals of old history.
const maintainEvery = 6 * time.Hour

// Maintain regularly removes old history and files of ended runs, and makes the daily backup.
func (k *Keeper) Maintain(ctx context.Context) error {
	tick := time.NewTicker(maintainEvery)
	defer tick.Stop()
	for {
		k.prune(ctx)
		k.backUp(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// prune removes old data. An error ends this pass, not the daemon.
func (k *Keeper) prune(ctx context.Context) {
	var n int
	var err error
	if k.Nodes.Leading() { // the leader does it for all nodes
		// Read the current setup each time, because a reload may have changed keep.
		n, err = k.Ledger.Maint.Prune(ctx, k.Ledger.Now(), k.Setup().Config.KeepOf)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		k.Logger.Error("old history could not be removed; it is tried again", "error", err)
	case n > 0:
		k.Logger.Info("old history was removed", "runs", n)
	}

	// After Prune, because it also removes the recordings of runs that were pruned.
	if err := k.Runner.Sweep(ctx); err != nil && ctx.Err() == nil {
		k.Logger.Warn("lists of files of runs that are over could not be removed; it is tried again", "error", err)
	}

	if err := k.Runner.Clones().Prune(ctx); err != nil && ctx.Err() == nil {
		k.Logger.Warn("old clones could not be removed; it is tried again", "error", err)
	}

	freed, err := k.Ledger.GiveSpaceBack(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		k.Logger.Warn("the space of old history could not be given back; it is tried again", "error", err)
	case freed > 0:
		k.Logger.Info("the space of old history was given back", "bytes", freed)
	}
}

// backUp makes the daily backup of the ledger and stores the error for doctor.
func (k *Keeper) backUp(ctx context.Context) {
	made, err := k.Ledger.BackUpDaily(ctx)
	if ctx.Err() != nil {
		return
	}

	k.backupProblem.Store(&err)
	switch {
	case err != nil:
		k.Logger.Error("the daily backup of the ledger could not be made; it is tried again", "error", err)
	case made:
		k.Logger.Info("the ledger was backed up")
	}
}

// keepRoomEvery is the interval between checks for free disk space.
const keepRoomEvery = 2 * time.Second

// KeepRoom keeps a reserve of disk space for the case of a full disk. It lets runs start again
// when there is free space.
func (k *Keeper) KeepRoom(ctx context.Context, reconsider func()) error {
	if k.Ledger.ReadOnly() != nil {
		return nil
	}

	tick := time.NewTicker(keepRoomEvery)
	defer tick.Stop()
	var was, told string
	for {
		problem := ""
		if err := k.Ledger.KeepReserve(); err != nil {
			problem = err.Error()
		}
		if problem != told && problem != "" {
			k.Logger.Warn("runs that are on when the disk is full may not be recorded", "problem", problem)
		}
		now := k.Ledger.DiskFull()
		switch {
		case now == was:
		case now != "":
			k.Logger.Error("nothing new starts", "problem", now)
		default:
			k.Logger.Info("there is room on the disk again, and runs start again")
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
