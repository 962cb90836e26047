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

// databaseFiles are the files of a database that was not closed, the database itself last.
var databaseFiles = []string{"-journal", "-shm", "-wal", ""}

// replace puts PATH-new, which is closed and sealed, into the place of a database that
// nobody has open; the old one goes to the folder aside. After a crash it is the old one,
// or finishReplacing makes it the new one when it is next opened.
func replace(path, aside string) error {
	s, err := readMarker(path + newSuffix)
	if err != nil {
		return err
	}
	if s.State != markerClosed {
		return fmt.Errorf("%s is not sealed", path+newSuffix)
	}
	if err := atomicfile.SyncFolder(filepath.Dir(path)); err != nil { // the new file has its name for good
		return err
	}

	s.State, s.Aside = markerReplacing, aside
	if err := writeMarker(path, s); err != nil {
		return fmt.Errorf("the database was left as it was: %w", err)
	}

	_, err = finishReplacing(path, s)
	return err
}

// finishReplacing may be repeated wherever it was cut off: while PATH-new is there, what is
// in its place is the old one.
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

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ownerOf says whose database a file is; "" when it is of a rouse that did not note that.
func ownerOf(path string) (agent string, err error) {
	db, err := sqlite.Look(path)
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
