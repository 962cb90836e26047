package agentdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/lineage"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// automaticPrefix begins the labels of copies that rouse makes by itself.
const automaticPrefix = "before-"

// KeepBackups is how many automatic copies are kept of each database.
const KeepBackups = 5

// BackupSpec says where a copy of the database goes.
type BackupSpec struct {
	File      string // "" means backups/TIME.sqlite beside the database
	Overwrite bool   // File may exist
	// Progress, when set, hears how many bytes are copied, of how many.
	Progress func(done, of int64)
}

// Backup is a copy of a database.
type Backup = dbfile.Backup

// Backups makes copies of a database.
type Backups struct {
	path   string
	agent  string // the owner, recorded in a database that has none
	keep   int    // automatic copies
	db     *sqlite.DB
	marker *dbfile.Keeper
	health *Health

	mu sync.Mutex // held while a backup is written
}

// Make writes a verified copy of the database as it is at this instant, while others go on
// writing.
func (b *Backups) Make(ctx context.Context, spec BackupSpec) (Backup, error) {
	path := spec.File
	if path == "" {
		var err error
		if path, err = dbfile.BackupPath(b.path, "", time.Now()); err != nil {
			return Backup{}, err
		}
	}
	if err := b.marker.Quarantined(); err != nil {
		return Backup{}, err
	}

	return b.write(ctx, path, spec.Overwrite, spec.Progress)
}

func (b *Backups) write(ctx context.Context, path string, overwrite bool, progress func(done, of int64)) (Backup, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if err := dbfile.CheckTarget(b.path, path, overwrite); err != nil {
		return Backup{}, RefusedTarget("file", err)
	}
	if err := b.recordOwner(ctx); err != nil {
		return Backup{}, b.health.explain(ctx, err)
	}

	var pages func(done, of int)
	if progress != nil {
		pages = func(done, of int) { progress(int64(done)*pageSize, int64(of)*pageSize) }
	}

	made, err := dbfile.WriteBackup(ctx, path, ApplicationID, overwrite, func(to string) error { return b.db.Copy(ctx, to, pages) })
	return made, b.health.quarantineIfCorrupt(ctx, err)
}

// Snapshot prepares a copy of the database at an instant that is yet to come.
func (b *Backups) Snapshot(ctx context.Context) (*sqlite.Snapshot, error) {
	if err := b.marker.Quarantined(); err != nil {
		return nil, err
	}
	if err := b.recordOwner(ctx); err != nil {
		return nil, b.health.explain(ctx, err)
	}
	s, err := sqlite.OpenSnapshot(ctx, b.path)
	return s, b.health.quarantineIfCorrupt(ctx, err)
}

// pageSize is SQLite's, which rouse leaves as it is.
const pageSize = 4096

// RefusedTarget returns the error for an argument that names an unusable backup, or place for one.
func RefusedTarget(field string, err error) error {
	var bad *dbfile.TargetError
	switch {
	case !errors.As(err, &bad):
		return err
	case bad.Missing:
		return &dberr.Error{Kind: dberr.KindNotFound, Field: field, Message: bad.Message}
	}
	return &dberr.Error{Kind: dberr.KindInvalid, Field: field, Message: bad.Message}
}

// beforeChange makes the copy from before a run's first change of the schema; a writer without a
// run gets one before each change. path is "" if none was made.
func (b *Backups) beforeChange(ctx context.Context, by changelog.By) (path string, err error) {
	if b.keep == 0 {
		return "", nil
	}
	if stored, err := recall(ctx, b.db, by, ""); stored != nil || err != nil {
		return "", err // the call was made already
	}

	tables, err := schema.ReadTables(ctx, b.db.Read(), "")
	if err != nil || len(tables) == 0 {
		return "", b.health.quarantineIfCorrupt(ctx, err)
	}

	label := automaticPrefix + "change"
	// One copy per run is enough, that of before its first change.
	if by.Run != 0 {
		if label, err = b.runLabel(ctx, by.Run); err != nil {
			return "", err
		}
		kept, err := dbfile.Backups(b.path)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(kept, func(b Backup) bool { return b.Why == label }) {
			return "", nil
		}
	}

	path, err = dbfile.BackupPath(b.path, label, time.Now())
	if err == nil {
		_, err = b.write(ctx, path, false, nil)
	}
	if err != nil {
		return "", fmt.Errorf("the schema was left as it is, because the copy that is made before it changes was not possible: %w", err)
	}

	return path, nil
}

// withBackup changes the schema after a copy was made. If the change is refused the copy is
// removed again: the database still holds the same, and an older backup would be pruned for it.
func withBackup[T any](ctx context.Context, db *DB, by changelog.By, change func() (T, error)) (done T, err error) {
	path, err := db.Backups.beforeChange(ctx, by)
	if err != nil {
		return done, err
	}

	done, err = change()
	var refused *dberr.Error
	switch {
	case path == "":
		return done, err
	case errors.As(err, &refused):
		return done, errors.Join(err, ignoreNotExist(os.Remove(path)))
	}

	if e := db.Backups.prune(); e != nil {
		db.log.Warn("the oldest backups of an agent's database could not be removed", "path", db.path, "error", e)
	}

	return done, err
}

// prune removes the oldest automatic copies, and unfinished ones. Holding mu shows
// that no unfinished one is still being written.
func (b *Backups) prune() error {
	b.mu.Lock()
	defer b.mu.Unlock()

	return dbfile.Prune(b.path, automaticPrefix, b.keep)
}

// runLabel names the copy from before a run changes the schema. Another ledger may have had a run
// of that number.
func (b *Backups) runLabel(ctx context.Context, run int64) (string, error) {
	var ledger int64
	if err := b.db.Read().QueryRowContext(ctx, `select `+lineage.OfRun, run).Scan(&ledger); err != nil {
		return "", err
	}

	label := fmt.Sprintf("%srun-%d", automaticPrefix, run)
	if ledger > 1 {
		label += fmt.Sprintf("-of-ledger-%d", ledger)
	}
	return label, nil
}

// recordOwner records in a database whose it is, if it does not say so yet, so that each copy
// says it too.
func (b *Backups) recordOwner(ctx context.Context) error {
	if b.agent == "" {
		return nil
	}

	var known bool
	if err := b.db.Read().QueryRowContext(ctx, `select exists (select 1 from _owner)`).Scan(&known); err != nil || known {
		return err
	}

	return b.db.Do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`insert into _owner(agent, since) values (?, ?)`, b.agent, sqlvalue.Now())
		return err
	})
}

// RecordOwnerAction writes into the changelog what the owner did with the whole database, and
// whose it is from now on.
func (b *Backups) RecordOwnerAction(ctx context.Context, agent, text string) error {
	err := b.db.Do(ctx, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(`delete from _owner`); err != nil {
			return err
		}
		if _, err := tx.Exec(`insert into _owner(agent, since) values (?, ?)`, agent, sqlvalue.Now()); err != nil {
			return err
		}

		_, err := changelog.Log(tx, changelog.By{Actor: changelog.ActorUser}, sqlvalue.Now(), changelog.Entry{Op: changelog.OpRaw, SQL: text})
		return err
	})
	if err != nil {
		return b.health.explain(ctx, err)
	}

	return nil
}

// ignoreNotExist makes removing what is not there no error.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
