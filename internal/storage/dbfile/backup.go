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
	partialSuffix  = ".partial" // of a copy that is not whole yet
)

// The reasons for a copy that nothing but its owner, or a replacement, made.
const (
	WhyManual   = "manual"
	WhyReplaced = "replaced" // of a database that was replaced
)

// LastBackup stands for the newest backup that is intact.
const LastBackup = "last"

// Backup is a copy of a database.
type Backup struct {
	Name  string    `json:"name"` // what Find takes; "" when it is not in the folder of backups
	Path  string    `json:"path"`
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at"`
	// Why is "manual", or what rouse was about to do: "before-run-12", "before-schema-5".
	Why string `json:"why"`
}

// TargetError is a place that a backup cannot be written to, or one that cannot be taken from.
type TargetError struct {
	Message string
	Missing bool // there is no such backup
}

func (e *TargetError) Error() string { return e.Message }

// BackupPath names a copy of a database that is made at an instant, and makes its folder.
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

// AsidePath names a folder, relative to that of its file, for a database that is replaced now.
func AsidePath() string {
	return filepath.Join(replacedFolder, time.Now().UTC().Format(stampLayout))
}

// WriteBackup has copy write a database to a file beside to, which gets its name once it was
// verified: an unfinished one must never look like a backup.
func WriteBackup(ctx context.Context, to string, applicationID int32, overwrite bool, copy func(to string) error) (Backup, error) {
	unfinished := to + partialSuffix
	if err := copy(unfinished); err != nil {
		return Backup{}, err
	}

	err := sqlite.Verify(ctx, unfinished, applicationID, false)
	if err == nil {
		if overwrite {
			err = atomicfile.Rename(unfinished, to)
		} else { // CheckTarget found nothing there, but a file may have come meanwhile
			err = atomicfile.RenameNew(unfinished, to)
		}
	}
	if err != nil {
		return Backup{}, errors.Join(fmt.Errorf("the copy is damaged, so it was removed: %w", err), ignoreNotExist(os.Remove(unfinished)))
	}

	return backupOf(to)
}

// CheckTarget refuses, with a *TargetError, a place for a copy of the database path that is taken,
// and the database itself even when overwriting.
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

	// By identity and not by name: a link may lead there.
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

// backupOf describes a copy by its name.
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

// Backups lists the copies in the folder beside a database, the newest first.
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

// BackupsAndReplaced lists also the databases that another took the place of.
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
			continue // somebody else made this folder
		}
		out = append(out, Backup{Name: stamp + "-" + WhyReplaced, Path: old, Bytes: Size(old), At: at, Why: WhyReplaced})
	}

	slices.SortStableFunc(out, func(a, b Backup) int { return b.At.Compare(a.At) })
	return out, nil
}

// LastGood gives the newest backup that is intact, "" when none is, and the names of newer ones
// that are damaged.
func LastGood(ctx context.Context, all []Backup, applicationID int32) (path string, skipped []string, err error) {
	skipped = []string{}
	for _, b := range all {
		if b.Why == WhyReplaced {
			continue
		}
		if sqlite.Verify(ctx, b.Path, applicationID, false) == nil {
			return b.Path, skipped, nil
		}
		if ctx.Err() != nil { // the check was cut off, which says nothing about the backup
			return "", nil, context.Cause(ctx)
		}

		skipped = append(skipped, b.Name)
	}

	return "", skipped, nil
}

// Find gives the file that from names: a backup of the database path, the beginning of the name of
// one, or the path of a file. whose and list are for the *TargetError that says why there is none:
// of what they are backups, and the command that lists them.
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

// CopyBackup copies what may be restored, and checks the whole copy.
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

// Prune removes the oldest of the copies whose reason begins with a prefix, until keep are left,
// and unfinished ones: nobody may be writing one.
func Prune(path, prefix string, keep int) error {
	all, err := Backups(path)
	if err != nil {
		return err
	}

	var errs []error
	kept := 0
	for _, b := range all {
		// Copies that the owner asked for are the owner's to remove.
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
