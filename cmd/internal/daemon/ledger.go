package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/homedir"
	"rouse/internal/atomicfile"
	"rouse/internal/ledger"
	"rouse/internal/storage/sqlite"
)

// identify records the ledger of the home, and holds databases whose runs the ledger does not know.
func (d *Daemon) identify(ctx context.Context) error {
	uses, err := d.databases.LedgerUses(ctx)
	if err != nil {
		return err
	}

	newest, err := d.ledger.NewestRun(ctx)
	if err != nil {
		return err
	}

	known := newest
	for _, u := range uses {
		known = max(known, u.Newest(d.ledger.ID()))
	}

	// Its own runs are known elsewhere, and not to itself: it would give their ids again.
	if known > newest {
		if err := d.ledger.BeginEpoch(ctx, known); err != nil {
			return err
		}
		d.log.Warn("the ledger is older than the agents' databases, so it begins a new epoch", "newest_run", newest, "known_run", known, "id", d.ledger.ID())
	}

	held, err := d.databases.HoldUnknown(ctx, uses)
	if err != nil {
		return err
	}

	configured := d.Current().AgentNames()
	var agents []string
	for _, h := range held {
		at := slices.IndexFunc(configured, func(name string) bool { return strings.EqualFold(name, h.Agent) })
		if at < 0 { // nobody runs it; it is asked about once somebody does
			continue
		}

		h.Agent = configured[at] // the folder may be in another case
		agents = append(agents, h.Agent)
		d.log.Warn("an agent's runs wait for its owner, because its database holds runs that the ledger does not know", "agent", h.Agent, "reason", h.Reason)
		if err := d.ledger.AskAboutDatabase(ctx, h.Agent, "the database of "+h.Agent+" holds runs that the ledger does not know", h.Error()); err != nil {
			return err
		}
	}

	var here []string
	for _, u := range uses {
		here = append(here, u.Agent)
	}
	if err := d.withdrawAnswered(ctx, agents, here); err != nil {
		return err
	}
	return d.stampLedger()
}

// withdrawAnswered withdraws the questions about databases that the ledger knows again. here are the databases of this home: the
// questions about others are those of other nodes.
func (d *Daemon) withdrawAnswered(ctx context.Context, held, here []string) error {
	items, err := d.ledger.Inbox(ctx)
	if err != nil {
		return err
	}
	for _, i := range items {
		elsewhere := d.Nodes.Shared() && !slices.ContainsFunc(here, func(name string) bool { return strings.EqualFold(name, i.Agent) })
		if i.Kind == ledger.KindDatabase && !slices.Contains(held, i.Agent) && !elsewhere {
			if err := d.ledger.CloseDatabaseItems(ctx, i.Agent, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// stampLedger has the home remember its ledger, so that one which is gone is never replaced by an empty one.
func (d *Daemon) stampLedger() error {
	before, id := homedir.ReadLedgerStamp(d.home.Dir), d.ledger.ID()
	if before == id {
		return nil
	}
	if _, known := d.ledger.Epoch(before); before != "" && !known {
		d.log.Warn("the home has another ledger than before", "before", before, "now", id)
	}

	if err := atomicfile.Write(filepath.Join(d.home.Dir, homedir.LedgerStampName), []byte(id+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot record which ledger the home has: %w", err)
	}
	return nil
}

// lookAfter is the interval at which open databases are compared with their files.
const lookAfter = 2 * time.Second

// watchFiles ends with an error if the ledger's file is deleted, replaced or cut off. It neither makes a new ledger nor uses
// another one, because the parts remember the lost one. A restart asks the owner.
func (d *Daemon) watchFiles(ctx context.Context) error {
	tick := time.NewTicker(lookAfter)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}

		// It logs what it finds, and the agent's next runs are held.
		d.databases.CheckFiles(ctx)

		err := d.ledger.CheckFile(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.As(err, new(*sqlite.LostError)):
			d.log.Error("the daemon stops", "error", err)
			d.tellLost(ctx, err)
			return err
		default:
			d.log.Warn("the ledger's file could not be looked at; it is tried again", "error", err)
		}
	}
}

// tellLost notifies the owner without the outbox, which is lost with the ledger.
func (d *Daemon) tellLost(ctx context.Context, lost error) {
	for channel := range d.Current().Plan.Channels {
		if err := d.notifier.Send(ctx, channel, "rouse stops", lost.Error()+". See: rouse doctor"); err != nil {
			d.log.Warn("that the ledger is lost could not be told", "channel", channel, "error", err)
		}
	}
}

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
	if d.Nodes.Leading() { // one node does it for all
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

	if err := d.runner.Clones().Prune(ctx); err != nil && ctx.Err() == nil {
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
