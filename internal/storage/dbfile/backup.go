package dbfile

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
	"rouse/internal/storage/sqlite"
)

const (
	backupFolder   = "backups"
	replacedFolder = "replaced"
	stampLayout    = "20060102T150405.000Z"
	backupSuffix   = ".sqlite"
	partialSuffix  = ".partial" // suffix of an unfinished copy
)

// Backup reasons that do not name a planned operation.
const (
	WhyManual   = "manual"
	WhyReplaced = "replaced" // a database that Replace moved aside
)

// LastBackup is the backup name that selects the newest intact backup.
const LastBackup = "last"

// Backup is a copy of a database.
type Backup struct {
	// Name selects the backup in commands; it is empty outside of the backups folder.
	Name  string    `json:"name"`
	Path  string    `json:"path"`
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at"`
	// Why is the reason for the backup: "manual", or the next operation, such as "before-run-12".
	Why string `json:"why"`
}

// TargetError reports that a backup cannot be written to a path or restored from it.
type TargetError struct {
	Message string
	Missing bool // the backup does not exist
}

func (e *TargetError) Error() string { return e.Message }

// BackupPath returns the path for a backup of path taken at the given time. It creates the backups
// folder if necessary.
func BackupPath(path, label string, at time.Time) (string, error) {
	dir := filepath.Join(filepath.Dir(path), backupFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the folder of the backups: %w", err)
	}

	name := at.UTC().Format(stampLayout)
	if label != "" {
		name += "-" + label
	}
	return filepath.Join(dir, name+backupSuffix), nil
}

// AsidePath returns a timestamped folder for a database that is being replaced. The path is
// relative to the folder of the database.
func AsidePath() string {
	return filepath.Join(replacedFolder, time.Now().UTC().Format(stampLayout))
}

// WriteBackup writes a database to the file to. It lets copy write a temporary file, verifies the
// copy and renames it, so that an unfinished copy never looks like a backup.
func WriteBackup(ctx context.Context, to string, applicationID int32, overwrite bool, copy func(to string) error) (Backup, error) {
	unfinished := to + partialSuffix
	if err := copy(unfinished); err != nil {
		return Backup{}, err
	}

	err := sqlite.Verify(ctx, unfinished, applicationID, false)
	if err == nil {
		if overwrite {
			err = atomicfile.Rename(unfinished, to)
		} else { // CheckTarget found no file, but one may have been created since
			err = atomicfile.RenameNew(unfinished, to)
		}
	}
	if err != nil {
		return Backup{}, errors.Join(fmt.Errorf("the copy is damaged, so it was removed: %w", err), ignoreNotExist(os.Remove(unfinished)))
	}

	return backupOf(to)
}

// CheckTarget returns a *TargetError if the database at path cannot be copied to the file to.
// Possible reasons: the file exists and overwrite is false, its folder is missing, or it is the
// database itself.
func CheckTarget(path, to string, overwrite bool) error {
	info, err := os.Lstat(to)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(to)); errors.Is(err, fs.ErrNotExist) {
			return &TargetError{Message: "there is no folder " + filepath.Dir(to) + "; make it, or name another"}
		}
		return nil
	}

	if err != nil {
		return fmt.Errorf("cannot write the backup: %w", err)
	}

	// Compare file identities instead of names, because to may be a link to the database.
	own, err := os.Stat(path)
	switch {
	case err == nil && os.SameFile(info, own):
		return &TargetError{Message: to + " is the database itself; name another file"}
	case !info.Mode().IsRegular():
		return &TargetError{Message: to + " is not a file; name one in it, or another"}
	case !overwrite:
		return &TargetError{Message: to + " exists already and was left as it is; name another file, or say --force"}
	}

	return nil
}

// backupOf returns the Backup for a file, based on its name.
func backupOf(path string) (Backup, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Backup{}, err
	}

	b := Backup{Path: path, Bytes: info.Size(), At: info.ModTime().UTC().Truncate(time.Millisecond), Why: WhyManual}
	name, ok := strings.CutSuffix(filepath.Base(path), backupSuffix)
	stamp, label, _ := strings.Cut(name, "-")
	if at, err := time.Parse(stampLayout, stamp); ok && err == nil {
		b.Name, b.At = name, at
		if label != "" {
			b.Why = label
		}
	}

	return b, nil
}

// Backups returns the copies in the backups folder beside the database, newest first.
func Backups(path string) ([]Backup, error) {
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
		if errors.Is(err, fs.ErrNotExist) { // removed since ReadDir
			continue
		}
		if err != nil {
			return nil, err
		}

		if b.Name == "" { // the file was renamed
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

// BackupsAndReplaced returns the backups and the databases that Replace moved aside, newest first.
func BackupsAndReplaced(path string) ([]Backup, error) {
	out, err := Backups(path)
	if err != nil {
		return nil, err
	}

	dirs, err := filepath.Glob(filepath.Join(filepath.Dir(path), replacedFolder, "*", filepath.Base(path)))
	if err != nil {
		return nil, err
	}

	for _, old := range dirs {
		stamp := filepath.Base(filepath.Dir(old))
		at, err := time.Parse(stampLayout, stamp)
		if err != nil {
			continue // not created by Replace
		}
		out = append(out, Backup{Name: stamp + "-" + WhyReplaced, Path: old, Bytes: Size(old), At: at, Why: WhyReplaced})
	}

	slices.SortStableFunc(out, func(a, b Backup) int { return b.At.Compare(a.At) })
	return out, nil
}

// LastGood returns the path of the newest intact backup, or "" if there is none. skipped lists the
// names of newer backups that are damaged.
func LastGood(ctx context.Context, all []Backup, applicationID int32) (path string, skipped []string, err error) {
	skipped = []string{}
	for _, b := range all {
		if b.Why == WhyReplaced {
			continue
		}
		if sqlite.Verify(ctx, b.Path, applicationID, false) == nil {
			return b.Path, skipped, nil
		}
		if ctx.Err() != nil { // interrupted, so the backup may be intact
			return "", nil, context.Cause(ctx)
		}

		skipped = append(skipped, b.Name)
	}

	return "", skipped, nil
}

// Find returns the file that from selects. from is the name of a backup, a unique prefix of one, or
// an absolute file path. If there is no such file, Find returns a *TargetError. Its message uses
// whose (the owner of the backups) and list (the command that lists them).
func Find(path string, all []Backup, from, whose, list string) (string, error) {
	var found []Backup
	for _, b := range all {
		if b.Name == from {
			return b.Path, nil
		}
		if from != "" && strings.HasPrefix(b.Name, from) {
			found = append(found, b)
		}
	}

	switch {
	case len(found) == 1:
		return found[0].Path, nil
	case len(found) > 1:
		return "", &TargetError{Message: fmt.Sprintf("%s is how the names of %d backups begin; give more of it: %s lists them", from, len(found), list)}
	case !filepath.IsAbs(from):
		return "", &TargetError{Message: fmt.Sprintf("there is no backup %q of %s, and no such file; %s lists them", from, whose, list), Missing: true}
	}

	info, err := os.Stat(from)
	switch {
	case err != nil:
		return "", &TargetError{Message: fmt.Sprintf("%s cannot be read: %v", from, err), Missing: true}
	case !info.Mode().IsRegular():
		return "", &TargetError{Message: from + " is not a file"}
	}

	if own, err := os.Stat(path); err == nil && os.SameFile(own, info) {
		return "", &TargetError{Message: from + " is the database itself"}
	}

	return from, nil
}

// CopyBackup copies a backup to another file and checks the whole copy. It returns a *TargetError
// if the backup is damaged.
func CopyBackup(ctx context.Context, from, to string, applicationID int32) error {
	err := sqlite.CopyFile(ctx, from, to)
	if err == nil {
		err = sqlite.Verify(ctx, to, applicationID, true)
	}

	var bad *sqlite.CorruptError
	if errors.As(err, &bad) {
		return &TargetError{Message: fmt.Sprintf("%s cannot be restored, and the database was left as it is: %s", from, bad.Reason)}
	}
	return err
}

// Prune keeps the newest keep backups with the given reason prefix and removes the others. It also
// removes unfinished copies, so it must not run while a backup is being written.
func Prune(path, prefix string, keep int) error {
	all, err := Backups(path)
	if err != nil {
		return err
	}

	var errs []error
	kept := 0
	for _, b := range all {
		// Backups that the owner requested are kept until the owner removes them.
		if !strings.HasPrefix(b.Why, prefix) {
			continue
		}
		if kept++; kept > keep {
			errs = append(errs, ignoreNotExist(os.Remove(b.Path)))
		}
	}

	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), backupFolder, "*"+partialSuffix))
	for _, path := range left {
		errs = append(errs, ignoreNotExist(os.Remove(path)))
	}

	return errors.Join(append(errs, err)...)
}
