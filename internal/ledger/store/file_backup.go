package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// The labels of automatic backups, and how many of each are kept.
const (
	beforeSchema = "before-schema-"
	daily        = "daily"
	keepBefore   = 5
	keepDaily    = 7
)

// dailyAge is the minimum age of the newest daily backup before the next one. It is less than a
// day, so that the time of day of the backup does not drift.
const dailyAge = 23 * time.Hour

// errNoFile is returned by operations that need a ledger in a file.
var errNoFile = errors.New("this ledger has no file of its own: PostgreSQL keeps and checks it, and has tools for its backups")

// Backup is a copy of a ledger.
type Backup = dbfile.Backup

// TargetError is returned for a path that a backup cannot be written to or read from.
type TargetError = dbfile.TargetError

// BackupSpec holds the options of a backup.
type BackupSpec struct {
	File      string // empty for backups/TIME.sqlite beside the ledger
	Overwrite bool   // whether File may exist
	Progress  func(done, of int64)
}

// Backup writes a copy of the ledger at this moment, while other writers continue. The copy gets
// its final name after it is verified. It does not include large values stored outside the
// database.
func (l *DB) Backup(ctx context.Context, spec BackupSpec) (Backup, error) {
	if err := l.hasFile(); err != nil {
		return Backup{}, err
	}

	path := spec.File
	if path == "" {
		var err error
		if path, err = dbfile.BackupPath(l.file.path, "", l.Now()); err != nil {
			return Backup{}, err
		}
	}

	return l.file.backup(ctx, path, spec)
}

// hasFile returns an error if the ledger has no file, or is read-only.
func (l *DB) hasFile() error {
	if err := l.ReadOnly(); err != nil {
		return err
	}
	if l.file == nil {
		return errNoFile
	}
	return nil
}

func (f *file) backup(ctx context.Context, path string, spec BackupSpec) (Backup, error) {
	f.backups.Lock()
	defer f.backups.Unlock()

	if err := dbfile.CheckTarget(f.path, path, spec.Overwrite); err != nil {
		return Backup{}, err
	}

	var pages func(done, of int)
	if spec.Progress != nil {
		size := f.db.PageSize()
		pages = func(done, of int) { spec.Progress(int64(done)*size, int64(of)*size) }
	}

	made, err := dbfile.WriteBackup(ctx, path, ApplicationID, spec.Overwrite, func(to string) error { return f.db.Copy(ctx, to, pages) })
	var bad *sqlite.CorruptError
	if errors.As(err, &bad) && bad.Path == f.path {
		f.setDamaged(err)
	}
	return made, Refusal(f.path, err)
}

// Backups returns the backups of the ledger at a path, and the ledgers that were replaced, newest
// first.
func Backups(path string) ([]Backup, error) { return dbfile.BackupsAndReplaced(path) }

// Backups returns the backups of this ledger.
func (l *DB) Backups() ([]Backup, error) {
	if l.Path == "" {
		return nil, errNoFile
	}
	return Backups(l.Path)
}

// BackUpDaily makes a backup if the newest daily backup is about a day old, and removes the oldest
// ones. It first waits until the file is checked, so that copies of a damaged file do not replace
// good ones.
func (l *DB) BackUpDaily(ctx context.Context) (made bool, err error) {
	if errors.Is(l.hasFile(), errNoFile) {
		return false, nil
	}
	if err := l.WaitChecked(ctx); err != nil {
		return false, err
	}

	all, err := dbfile.Backups(l.file.path)
	if err != nil {
		return false, err
	}

	for _, b := range all {
		if b.Why == daily && l.Now().Sub(b.At) < dailyAge {
			return false, nil
		}
	}

	path, err := dbfile.BackupPath(l.file.path, daily, l.Now())
	if err == nil {
		_, err = l.file.backup(ctx, path, BackupSpec{})
	}
	if err != nil {
		return false, err
	}

	return true, l.file.prune()
}

// WaitChecked waits until the whole file is checked. It returns an error if the file is damaged.
func (l *DB) WaitChecked(ctx context.Context) error {
	if err := l.hasFile(); err != nil {
		return err
	}

	select {
	case <-l.file.checked:
		return l.ReadOnly()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prune removes the oldest automatic backups.
func (f *file) prune() error {
	f.backups.Lock()
	defer f.backups.Unlock()
	return errors.Join(dbfile.Prune(f.path, daily, keepDaily), dbfile.Prune(f.path, strings.TrimSuffix(beforeSchema, "-"), keepBefore))
}

// HoldValues keeps large values from being removed until release is called. Code that removes them
// must hold it, too.
func HoldValues(ctx context.Context, l *DB) (release func(), err error) {
	select {
	case l.pruning <- struct{}{}:
		return func() { <-l.pruning }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Snapshot fixes the state of the ledger, from which a copy can be made. It calls others while
// writes to the ledger are blocked, so that other data is fixed at the same moment. No run or call
// can begin meanwhile.
//
// All work that is recorded as done is therefore in the snapshots of others. As after a crash, only
// running calls can be ahead of the ledger. Large values are not removed until release is called.
func (l *DB) Snapshot(ctx context.Context, others func(context.Context) error) (_ *sqlite.Snapshot, release func(), err error) {
	if err := l.hasFile(); err != nil {
		return nil, nil, err
	}
	if err := l.WaitChecked(ctx); err != nil { // a copy of a damaged file must not replace good copies
		return nil, nil, err
	}

	if release, err = HoldValues(ctx, l); err != nil {
		return nil, nil, err
	}

	s, err := sqlite.OpenSnapshot(ctx, l.file.path)
	if err != nil {
		release()
		return nil, nil, err
	}
	err = l.writer.DoExclusive(ctx, func() error {
		if err := s.Take(ctx); err != nil {
			return err
		}
		return others(ctx)
	})
	if err != nil {
		release()
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, release, nil
}

// Verify returns a *sqlite.CorruptError unless the file at a path is an intact ledger. No process
// may have it open.
func Verify(ctx context.Context, path string) error {
	return sqlite.Verify(ctx, path, ApplicationID, false)
}
