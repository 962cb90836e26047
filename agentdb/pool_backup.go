package agentdb

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

	"rouse/agentdb/sqlite"
	"rouse/internal/atomicfile"
)

const (
	backupFolder    = "backups"
	backupLayout    = "20060102T150405.000Z"
	backupSuffix    = ".sqlite"
	partialSuffix   = ".partial" // of a copy that is not whole yet
	automaticPrefix = "before-"  // of the labels of copies that rouse makes by itself
)

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
type Backup struct {
	Name  string    `json:"name"` // what Restore takes; "" when it is not in the folder of backups
	Path  string    `json:"path"`
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at"`
	// Why is "by hand", or what rouse was about to do: "before-run-12", "before-schema-5".
	Why string `json:"why"`
}

const manualBackup = "by hand"

// Backup writes a copy of the database as it is at this instant, while others go on
// writing: until it is done their log grows by what they write. The copy has its name once
// it was verified. It is opened like any database of an agent.
func (db *DB) Backup(ctx context.Context, spec BackupSpec) (Backup, error) {
	path := spec.File
	if path == "" {
		var err error
		if path, err = db.backupPath(""); err != nil {
			return Backup{}, err
		}
	}
	if err := db.marker.quarantined(); err != nil {
		return Backup{}, err
	}

	return db.backup(ctx, path, spec.Overwrite, spec.Progress)
}

// backupPath names a copy that is made now, and makes its folder.
func (db *DB) backupPath(label string) (string, error) {
	dir := filepath.Join(filepath.Dir(db.path), backupFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the folder of the backups: %w", err)
	}

	name := time.Now().UTC().Format(backupLayout)
	if label != "" {
		name += "-" + label
	}
	return filepath.Join(dir, name+backupSuffix), nil
}

func (db *DB) backup(ctx context.Context, path string, overwrite bool, progress func(done, of int64)) (Backup, error) {
	db.backupMu.Lock()
	defer db.backupMu.Unlock()

	if err := db.checkBackupPath(path, overwrite); err != nil {
		return Backup{}, err
	}
	if err := db.recordOwner(ctx); err != nil {
		return Backup{}, db.explain(ctx, err)
	}

	var pages func(done, of int)
	if progress != nil {
		pages = func(done, of int) { progress(int64(done)*pageSize, int64(of)*pageSize) }
	}

	// A copy has its name only once it is verified: an unfinished one must never look like a
	// backup.
	unfinished := path + partialSuffix
	if err := db.db.Copy(ctx, unfinished, pages); err != nil {
		return Backup{}, db.quarantineIfCorrupt(ctx, err)
	}

	err := sqlite.Verify(ctx, unfinished, applicationID, false)
	if err == nil {
		if overwrite {
			err = atomicfile.Rename(unfinished, path)
		} else { // checkBackupPath found nothing there, but a file may have come meanwhile
			err = atomicfile.RenameNew(unfinished, path)
		}
	}
	if err != nil {
		return Backup{}, errors.Join(fmt.Errorf("the copy is damaged, so it was removed: %w", err), ignoreNotExist(os.Remove(unfinished)))
	}

	return backupOf(path)
}

// pageSize is SQLite's, which rouse leaves as it is.
const pageSize = 4096

// checkBackupPath refuses a file that exists, and the database itself even when overwriting.
func (db *DB) checkBackupPath(path string, overwrite bool) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if folder := filepath.Dir(path); fileMissing(folder) {
			return &Error{Kind: kindInvalid, Field: "file", Message: "there is no folder " + folder + "; make it, or name another"}
		}
		return nil
	}

	if err != nil {
		return fmt.Errorf("cannot write the backup: %w", err)
	}

	// By identity and not by name: a link may lead there.
	own, err := os.Stat(db.path)
	switch {
	case err == nil && os.SameFile(info, own):
		return &Error{Kind: kindInvalid, Field: "file", Message: path + " is the database itself; name another file"}
	case !info.Mode().IsRegular():
		return &Error{Kind: kindInvalid, Field: "file", Message: path + " is not a file; name one in it, or another"}
	case !overwrite:
		return &Error{Kind: kindInvalid, Field: "file", Message: path + " exists already and was left as it is; name another file, or say --force"}
	}

	return nil
}

func fileMissing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// backupOf describes a copy by its name.
func backupOf(path string) (Backup, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Backup{}, err
	}

	b := Backup{Path: path, Bytes: info.Size(), At: info.ModTime().UTC().Truncate(time.Millisecond), Why: manualBackup}
	name, ok := strings.CutSuffix(filepath.Base(path), backupSuffix)
	stamp, label, _ := strings.Cut(name, "-")
	if at, err := time.Parse(backupLayout, stamp); ok && err == nil {
		b.Name, b.At = name, at
		if label != "" {
			b.Why = label
		}
	}

	return b, nil
}

// backups lists the copies in the folder of an agent's database, the newest first.
func backups(path string) ([]Backup, error) {
	dir := filepath.Join(filepath.Dir(path), backupFolder)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return []Backup{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the backups: %w", err)
	}

	out := []Backup{}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), backupSuffix) {
			continue
		}

		b, err := backupOf(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}

		if b.Name == "" { // somebody gave it another name
			b.Name = strings.TrimSuffix(e.Name(), backupSuffix)
		}

		out = append(out, b)
	}

	slices.SortFunc(out, func(a, b Backup) int {
		if n := b.At.Compare(a.At); n != 0 {
			return n
		}
		return strings.Compare(b.Name, a.Name)
	})

	return out, nil
}

// backupBefore makes the copy of the time before a run changes the schema for the first time:
// what it changes afterwards can be undone by the changelog. Others get one before each change.
// A database without tables has nothing to keep. path is "" where none was made.
func (db *DB) backupBefore(ctx context.Context, by By) (path string, err error) {
	if db.backupsToKeep == 0 {
		return "", nil
	}
	if stored, err := db.recall(ctx, by, ""); stored != nil || err != nil {
		return "", err // the call was made already
	}

	tables, err := readTables(ctx, db.db.Read(), "")
	if err != nil || len(tables) == 0 {
		return "", db.quarantineIfCorrupt(ctx, err)
	}

	label := automaticPrefix + "change"
	// One copy per run is enough, that of before its first change.
	if by.Run != 0 {
		label = fmt.Sprintf("%srun-%d", automaticPrefix, by.Run)
		kept, err := backups(db.path)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(kept, func(b Backup) bool { return b.Why == label }) {
			return "", nil
		}
	}

	path, err = db.backupPath(label)
	if err == nil {
		_, err = db.backup(ctx, path, false, nil)
	}
	if err != nil {
		return "", fmt.Errorf("the schema was left as it is, because the copy that is made before it changes was not possible: %w", err)
	}

	return path, nil
}

// withBackup changes the schema after a copy was made. If the change is refused the copy is
// removed again: the database still holds the same, and an older backup would be pruned for it.
func withBackup[T any](ctx context.Context, db *DB, by By, change func() (T, error)) (done T, err error) {
	path, err := db.backupBefore(ctx, by)
	if err != nil {
		return done, err
	}

	done, err = change()
	var refused *Error
	switch {
	case path == "":
		return done, err
	case errors.As(err, &refused):
		return done, errors.Join(err, ignoreNotExist(os.Remove(path)))
	}

	if e := db.pruneBackups(); e != nil {
		db.log.Warn("the oldest backups of an agent's database could not be removed", "path", db.path, "error", e)
	}

	return done, err
}

// pruneBackups removes the oldest automatic copies, and unfinished ones. Holding backupMu shows
// that no unfinished one is still being written.
func (db *DB) pruneBackups() error {
	db.backupMu.Lock()
	defer db.backupMu.Unlock()

	all, err := backups(db.path)
	if err != nil {
		return err
	}

	var errs []error
	kept := 0
	for _, b := range all {
		// Copies that the owner asked for are the owner's to remove.
		if !strings.HasPrefix(b.Why, automaticPrefix) {
			continue
		}
		if kept++; kept > db.backupsToKeep {
			errs = append(errs, ignoreNotExist(os.Remove(b.Path)))
		}
	}

	left, err := filepath.Glob(filepath.Join(filepath.Dir(db.path), backupFolder, "*"+partialSuffix))
	for _, path := range left {
		errs = append(errs, ignoreNotExist(os.Remove(path)))
	}

	return errors.Join(append(errs, err)...)
}

// recordOwner records in a database whose it is, if it does not say so yet, so that each copy
// says it too.
func (db *DB) recordOwner(ctx context.Context) error {
	if db.agent == "" {
		return nil
	}

	var known bool
	if err := db.db.Read().QueryRowContext(ctx, `select exists (select 1 from _owner)`).Scan(&known); err != nil || known {
		return err
	}

	return db.db.Do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`insert into _owner(agent, since) values (?, ?)`, db.agent, now())
		return err
	})
}
