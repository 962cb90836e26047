package dbfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rouse/internal/atomicfile"
)

// NewSuffix is the suffix of the file that will replace a database.
const NewSuffix = "-new"

// databaseFiles are the suffixes of the files of a database that was not closed. The database
// itself comes last: until it moves, an interrupted replacement can be repeated.
var databaseFiles = []string{"-journal", "-shm", "-wal", ""}

// Replace replaces the database at path with PATH-new and moves the old database to the folder
// aside. PATH-new must be closed and have a checksum, and the old database must not be open in any
// process. After a crash, either the old database is still there, or finishReplacing completes the
// replacement when the database is next opened.
func Replace(path, aside string) error {
	s, err := ReadMarker(path + NewSuffix)
	if err != nil {
		return err
	}
	if s.State != StateClosed {
		return fmt.Errorf("%s has no checksum", path+NewSuffix)
	}
	// Sync the folder first: a power cut must not remove a file that the marker names.
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

// finishReplacing completes a replacement. It can be repeated after an interruption at any point:
// as long as PATH-new exists, the file at path is the old database.
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

	// The marker already has the size and checksum of the new file; see Replace.
	s.State, s.Aside = StateClosed, ""
	if err := WriteMarker(path, s); err != nil {
		return fail(err)
	}

	return s, ignoreNotExist(os.Remove(MarkerPath(path + NewSuffix)))
}

// DiscardNew removes the files of a replacement that was interrupted before Replace was called.
func DiscardNew(path string) error {
	var errs []error
	for _, part := range append([]string{"-seal"}, databaseFiles...) {
		errs = append(errs, ignoreNotExist(os.Remove(path+NewSuffix+part)))
	}
	return errors.Join(errs...)
}

// ignoreNotExist returns err, or nil if err is fs.ErrNotExist.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
