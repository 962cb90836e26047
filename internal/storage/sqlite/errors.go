package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"

	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// noShared is SQLite's extended code for a disk that is too full for the -shm file. Reading needs
// this file of a few KiB, too.
const noShared = sqlite3.SQLITE_IOERR_SHMSIZE

// CorruptError reports a file that is damaged or not the expected database. The file is left
// unchanged.
type CorruptError struct{ Path, Reason string }

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s cannot be used: %s; it was left as it is: restore it from a backup, or move it away to start with an empty one", e.Path, e.Reason)
}

// Code returns SQLite's primary result code of an error, or 0 if the error is not from SQLite.
func Code(err error) int { return extendedCode(err) & 0xff }

func extendedCode(err error) int {
	var e *msqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code()
}

// Corrupt reports whether SQLite found a database damaged, or the file is not a database.
func Corrupt(err error) bool { return isCorrupt(err) || errors.As(err, new(*CorruptError)) }

func isCorrupt(err error) bool {
	code := Code(err)
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

// StorageFailed reports whether a write failed because of the disk: full, read-only, or failing.
func StorageFailed(err error) bool {
	switch Code(err) {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// Full reports whether a write failed because the disk is full. The database is unchanged then.
func Full(err error) bool { return Code(err) == sqlite3.SQLITE_FULL || extendedCode(err) == noShared }

// openError returns an error with advice for the owner of the file. If the file is damaged, it is a
// *CorruptError.
func openError(path string, err error) error {
	switch {
	case isCorrupt(err):
		var e *msqlite.Error
		errors.As(err, &e)
		return &CorruptError{path, "it is damaged or not a database (" + e.Error() + ")"}
	case extendedCode(err) == noShared:
		return fmt.Errorf("cannot open the database %s: there is no space for its -shm file, so its disk is probably full; free some space and try again: %w", path, err)
	case Code(err) == sqlite3.SQLITE_CANTOPEN: // the file itself, or its -wal or -shm file
		return fmt.Errorf("cannot open the database %s: look at the owner and the permissions of the file and of its folder, and whether its disk is mounted to be read only: %w", path, err)
	}
	return fmt.Errorf("cannot open the database %s: %w", path, err)
}

// beginError adds context to the error of a transaction that cannot begin.
func beginError(err error) error {
	if Code(err) == sqlite3.SQLITE_BUSY {
		return fmt.Errorf("another program holds the database (an open sqlite3 shell, or a copy that is being made); close it: %w", err)
	}
	return fmt.Errorf("cannot begin to write: %w", err)
}

func copyError(to string, err error) error {
	if code := Code(err); code == sqlite3.SQLITE_FULL || code == sqlite3.SQLITE_IOERR {
		return fmt.Errorf("the copy does not fit, or its disk fails: %s; free some space there, or name another place: %w", filepath.Dir(to), err)
	}
	return fmt.Errorf("cannot copy the database to %s: %w", to, err)
}
