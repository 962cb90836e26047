package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// The labels of the backups that are made automatically, and how many of each are kept.
const (
	beforeSchema = "before-schema-"
	daily        = "daily"
	keepBefore   = 5
	keepDaily    = 7
)

// dailyAge is how old the newest daily backup may be. It is a little less than a day, so that the
// hour at which it is made does not move on each day by the time between two looks.
const dailyAge = 23 * time.Hour

// errNoFile is what is said about a ledger that is not a file of its own.
var errNoFile = errors.New("this ledger has no file of its own: PostgreSQL keeps and checks it, and has tools for its backups")

// Backup is a copy of a ledger.
type Backup = dbfile.Backup

// TargetError is a place that a backup cannot be written to, or one that cannot be taken from.
type TargetError = dbfile.TargetError

// BackupSpec says where a copy of the ledger goes.
type BackupSpec struct {
	File      string // "" means backups/TIME.sqlite beside the ledger
	Overwrite bool   // File may exist
	Progress  func(done, of int64)
}

// Backup writes a copy of the ledger as it is at this instant, while others go on writing. The copy
// has its name once it was verified. Values in the folder of blobs are not part of it.
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

// hasFile refuses where there is no file that could be written.
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

// Backups lists the copies of the ledger at a path, and those that another took the place of, the
// newest first.
func Backups(path string) ([]Backup, error) { return dbfile.BackupsAndReplaced(path) }

// Backups lists the copies of this ledger.
func (l *DB) Backups() ([]Backup, error) {
	if l.Path == "" {
		return nil, errNoFile
	}
	return Backups(l.Path)
}

// BackUpDaily makes a backup if the newest of its kind is a day old, and removes those that are too
// many. A file that is being checked is waited for: damage is not to push good copies out.
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

// WaitChecked waits until the whole file was checked, and refuses one that is damaged.
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

// prune removes the backups that are too many.
func (f *file) prune() error {
	f.backups.Lock()
	defer f.backups.Unlock()
	return errors.Join(dbfile.Prune(f.path, daily, keepDaily), dbfile.Prune(f.path, strings.TrimSuffix(beforeSchema, "-"), keepBefore))
}

// HoldValues keeps large values from being removed until release is called. Those who remove them hold it, too.
func HoldValues(ctx context.Context, l *DB) (release func(), err error) {
	select {
	case l.pruning <- struct{}{}:
		return func() { <-l.pruning }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Snapshot fixes the ledger at one instant, of which a copy can be made, and has the others be fixed at the same: they are
// called while nothing is written to the ledger, so that no run and no call begins. What was recorded as done by then is in
// their snapshots; of what they have done since, nothing but the calls that were on can be ahead of the ledger, as after a
// crash. No large value is removed until release is called.
func (l *DB) Snapshot(ctx context.Context, others func(context.Context) error) (_ *sqlite.Snapshot, release func(), err error) {
	if err := l.hasFile(); err != nil {
		return nil, nil, err
	}
	if err := l.WaitChecked(ctx); err != nil { // damage is not to take the place of good copies
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

// Verify returns a *sqlite.CorruptError unless a file that nobody has open is an intact ledger.
func Verify(ctx context.Context, path string) error {
	return sqlite.Verify(ctx, path, ApplicationID, false)
}
