package agentdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rouse/agentdb/sqlite"
	"rouse/internal/atomicfile"
)

// newSuffix marks the file that is to take a database's place.
const newSuffix = "-new"

// databaseFiles are the suffixes of the files of a database that was not closed. The database itself is
// last: while it is in its old place, a replacement that was cut off can be repeated.
var databaseFiles = []string{"-journal", "-shm", "-wal", ""}

// replace puts PATH-new, which is closed and has its checksum, into the place of a database
// that nobody has open; the old one goes to the folder aside. After a crash either the old one
// is there, or finishReplacing completes the step when the database is next opened.
func replace(path, aside string) error {
	s, err := readMarker(path + newSuffix)
	if err != nil {
		return err
	}
	if s.State != markerClosed {
		return fmt.Errorf("%s has no checksum", path+newSuffix)
	}
	// The marker must not name a file that a power cut could still take away.
	if err := atomicfile.SyncFolder(filepath.Dir(path)); err != nil {
		return err
	}

	s.State, s.Aside = markerReplacing, aside
	if err := writeMarker(path, s); err != nil {
		return fmt.Errorf("the database was left as it was: %w", err)
	}

	_, err = finishReplacing(path, s)
	return err
}

// finishReplacing can be repeated wherever it was cut off: as long as PATH-new exists, what is
// at PATH is the old database.
func finishReplacing(path string, s marker) (marker, error) {
	fail := func(err error) (marker, error) {
		return s, fmt.Errorf("the database %s is not yet replaced; that goes on when it is next opened: %w", path, err)
	}
	_, err := os.Lstat(path + newSuffix)
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

		if err := errors.Join(os.Rename(path+newSuffix, path), atomicfile.SyncFolder(aside), atomicfile.SyncFolder(filepath.Dir(path))); err != nil {
			return fail(err)
		}
	}

	// The marker already has the size and checksum of the new file; see replace.
	s.State, s.Aside = markerClosed, ""
	if err := writeMarker(path, s); err != nil {
		return fail(err)
	}

	return s, ignoreNotExist(os.Remove(markerPath(path + newSuffix)))
}

// discardNew removes what a replacement left that was cut off before it began.
func discardNew(path string) error {
	var errs []error
	for _, part := range append([]string{"-seal"}, databaseFiles...) {
		errs = append(errs, ignoreNotExist(os.Remove(path+newSuffix+part)))
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

// ownerOf says whose database a file is; "" when the rouse that made it did not record that.
func ownerOf(path string) (agent string, err error) {
	db, err := sqlite.OpenReadOnly(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	var known bool
	if err := db.QueryRow(`select exists (select 1 from sqlite_schema where name = '_owner')`).Scan(&known); err != nil || !known {
		return "", err
	}

	err = db.QueryRow(`select coalesce(max(agent), '') from _owner`).Scan(&agent)
	return agent, err
}
