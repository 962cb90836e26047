package dbfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rouse/internal/atomicfile"
)

// NewSuffix marks the file that is to take a database's place.
const NewSuffix = "-new"

// databaseFiles are the suffixes of the files of a database that was not closed. The database itself is
// last: while it is in its old place, a replacement that was cut off can be repeated.
var databaseFiles = []string{"-journal", "-shm", "-wal", ""}

// Replace puts PATH-new, which is closed and has its checksum, into the place of a database
// that nobody has open; the old one goes to the folder aside. After a crash either the old one
// is there, or finishReplacing completes the step when the database is next opened.
func Replace(path, aside string) error {
	s, err := ReadMarker(path + NewSuffix)
	if err != nil {
		return err
	}
	if s.State != StateClosed {
		return fmt.Errorf("%s has no checksum", path+NewSuffix)
	}
	// The marker must not name a file that a power cut could still take away.
	if err := atomicfile.SyncFolder(filepath.Dir(path)); err != nil {
		return err
	}

	s.State, s.Aside = StateReplacing, aside
	if err := WriteMarker(path, s); err != nil {
		return fmt.Errorf("the database was left as it was: %w", err)
	}

	_, err = finishReplacing(path, s)
	return err
}

// finishReplacing can be repeated wherever it was cut off: as long as PATH-new exists, what is
// at PATH is the old database.
func finishReplacing(path string, s Marker) (Marker, error) {
	fail := func(err error) (Marker, error) {
		return s, fmt.Errorf("the database %s is not yet replaced; that goes on when it is next opened: %w", path, err)
	}
	_, err := os.Lstat(path + NewSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}

	if err == nil {
		aside := filepath.Join(filepath.Dir(path), s.Aside)
		if err := os.MkdirAll(aside, 0o700); err != nil {
			return fail(err)
		}

		for _, part := range databaseFiles {
			if err := os.Rename(path+part, filepath.Join(aside, filepath.Base(path)+part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fail(err)
			}
		}

		if err := errors.Join(os.Rename(path+NewSuffix, path), atomicfile.SyncFolder(aside), atomicfile.SyncFolder(filepath.Dir(path))); err != nil {
			return fail(err)
		}
	}

	// The marker already has the size and checksum of the new file; see replace.
	s.State, s.Aside = StateClosed, ""
	if err := WriteMarker(path, s); err != nil {
		return fail(err)
	}

	return s, ignoreNotExist(os.Remove(MarkerPath(path + NewSuffix)))
}

// DiscardNew removes what a replacement left that was cut off before it began.
func DiscardNew(path string) error {
	var errs []error
	for _, part := range append([]string{"-seal"}, databaseFiles...) {
		errs = append(errs, ignoreNotExist(os.Remove(path+NewSuffix+part)))
	}
	return errors.Join(errs...)
}

// ignoreNotExist makes removing what is not there no error.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
