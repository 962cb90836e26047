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

// automaticPrefix is the prefix of the labels of automatic backups.
const automaticPrefix = "before-"

// KeepBackups is the number of automatic backups that the daemon keeps per database.
const KeepBackups = 5

// BackupSpec is the destination of a backup.
type BackupSpec struct {
	File      string // default backups/TIME.sqlite beside the database
	Overwrite bool   // replace an existing File
	// Progress receives the number of bytes copied and the total. Optional.
	Progress func(done, of int64)
}

// Backup is a copy of a database.
type Backup = dbfile.Backup

// Backups makes copies of a database.
type Backups struct {
	path string
	// agent is the owner. It is recorded in the database if the file has no owner yet.
	agent  string
	keep   int // number of automatic backups to keep
	db     *sqlite.DB
	marker *dbfile.Keeper
	health *Health

	mu sync.Mutex // held while a backup is written
}

// Make writes a verified copy of the current database. Other calls can write meanwhile.
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

// Snapshot prepares a copy of the database as it will be at a later time.
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

// pageSize is SQLite's default, which rouse does not change.
const pageSize = 4096

// RefusedTarget returns the error for an argument that names an unusable backup or destination.
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

// beforeChange makes a backup before a run's first schema change. If the writer is not a run, it
// makes one before each change. path is empty if no backup was needed.
func (b *Backups) beforeChange(ctx context.Context, by changelog.By) (path string, err error) {
	if b.keep == 0 {
		return "", nil
	}
	if stored, err := recall(ctx, b.db, by, ""); stored != nil || err != nil {
		return "", err // repeated call
	}

	tables, err := schema.ReadTables(ctx, b.db.Read(), "")
	if err != nil || len(tables) == 0 {
		return "", b.health.quarantineIfCorrupt(ctx, err)
	}

	label := automaticPrefix + "change"
	// One backup per run is enough: the one before its first change.
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

// withBackup changes the schema after making a backup. If the change is rejected, it removes the
// backup: the database has not changed, and keeping the backup would prune an older one.
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

// prune removes the oldest automatic backups and unfinished files. It holds mu, so no unfinished
// file is still being written.
func (b *Backups) prune() error {
	b.mu.Lock()
	defer b.mu.Unlock()

	return dbfile.Prune(b.path, automaticPrefix, b.keep)
}

// runLabel returns the label of the backup before a run's first schema change. The label includes
// the ledger unless it is the first one, because two ledgers can have runs with the same number.
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

// recordOwner records the owner in the database unless an owner is already recorded, so that
// every copy names its owner.
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

// RecordOwnerAction writes an action of the user on the whole database into the changelog and
// records agent as the new owner.
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

// ignoreNotExist returns nil if the file does not exist, and err otherwise.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
