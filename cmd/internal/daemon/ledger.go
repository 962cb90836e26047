package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/internal/atomicfile"
	"rouse/internal/ledger"
	"rouse/internal/ledger/store"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

const (
	ledgerName      = "ledger.db"
	ledgerStampName = "ledger-id" // beside it: the id of the ledger that the home has

	// emptyLedger is up to which size, in bytes, a ledger's file may hold no table: a page of SQLite's.
	emptyLedger = 64 << 10
)

// MissingLedgerError means that the ledger is gone. A new ledger would give the ids of its runs again.
type MissingLedgerError struct {
	Path   string   // of the ledger
	State  string   // "is missing", …
	Left   []string // what is there that says that it had one
	Backup string   // the newest that was found; "" for none
}

func (e *MissingLedgerError) Error() string {
	from := "from your backup of the home: rouse ledger restore FILE"
	if e.Backup != "" {
		from = "from the newest backup, " + e.Backup + ": rouse ledger restore last"
	}
	return fmt.Sprintf("the ledger %s %s, and this home had one: there is %s. Nothing was started, and nothing was changed. Put the ledger back, with its %s-wal if it has one; or go on %s. To begin with an empty one instead: rouse ledger reset; then each agent's database that holds runs of the old one is asked about in the inbox",
		e.Path, e.State, text.List(e.Left, 10), ledgerName, from)
}

// FindLedger returns a *MissingLedgerError if a home has lost its ledger.
func FindLedger(ctx context.Context, dir string) error {
	path := filepath.Join(dir, ledgerName)
	state := ledgerState(ctx, path)
	if state == "" {
		return nil
	}

	left, backup := leftOfLedger(dir), ""
	if all, err := store.Backups(path); err == nil && len(all) > 0 {
		left, backup = append(left, "backups of it"), all[0].Path
	}
	if len(left) == 0 { // the home is new, or its very first start was cut off
		return nil
	}

	return &MissingLedgerError{Path: path, State: state, Left: left, Backup: backup}
}

// ledgerState describes a ledger file without content. It returns "" if there is some.
func ledgerState(ctx context.Context, path string) string {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is missing"
	case err == nil && info.IsDir():
		return "is a folder, which has to be moved away first"
	case err != nil || info.Size() > emptyLedger:
		return ""
	case info.Size() == 0:
		return "is empty"
	}

	// A file without its log can be left with nothing but its first page.
	db, err := sqlite.OpenReadOnly(path)
	if err != nil {
		return ""
	}
	defer func() { _ = db.Close() }() // it only read

	var tables int
	if err := db.QueryRowContext(ctx, `select count(*) from sqlite_schema`).Scan(&tables); err == nil && tables == 0 {
		return "holds nothing"
	}
	return ""
}

// leftOfLedger names what a home has only if it had a ledger.
func leftOfLedger(dir string) (left []string) {
	if id := readLedgerStamp(dir); id != "" {
		left = append(left, "the id of the one it had ("+filepath.Join(dir, ledgerStampName)+")")
	}

	for _, kind := range []struct{ pattern, one string }{
		{"agents/*/db.sqlite", "agent's database"}, {"recordings/*.jsonl", "recording"}, {"blobs/*/*", "large value of the record"}, {ledgerName + "-wal", "log of it"},
	} {
		found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(kind.pattern)))
		if err == nil && len(found) > 0 {
			left = append(left, fmt.Sprintf("%s (%s)", text.Plural(len(found), kind.one), found[0]))
		}
	}

	return left
}

// readLedgerStamp is the id of the ledger that a home had last; "" when none is recorded.
func readLedgerStamp(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, ledgerStampName))
	if err != nil {
		return "" // one that cannot be read is no reason to refuse a home whose ledger is there
	}
	return strings.TrimSpace(string(text))
}

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
		elsewhere := d.shared() && !slices.ContainsFunc(here, func(name string) bool { return strings.EqualFold(name, i.Agent) })
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
	before, id := readLedgerStamp(d.home.Dir), d.ledger.ID()
	if before == id {
		return nil
	}
	if _, known := d.ledger.Epoch(before); before != "" && !known {
		d.log.Warn("the home has another ledger than before", "before", before, "now", id)
	}

	if err := atomicfile.Write(filepath.Join(d.home.Dir, ledgerStampName), []byte(id+"\n"), 0o600); err != nil {
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
