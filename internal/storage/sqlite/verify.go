package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// OpenReadOnly opens a database read-only, including its log. The database must not be open
// elsewhere. The caller must close it.
func OpenReadOnly(path string) (*sql.DB, error) {
	empty, err := probe(path)
	if err != nil {
		return nil, err
	}

	if empty {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("there is no database %s: %w", path, err)
		}
		return nil, &CorruptError{path, "it is empty"}
	}

	params := []string{"mode=ro", "_pragma=cell_size_check(1)", "_pragma=query_only(1)"}
	if _, err := os.Stat(path + "-wal"); err != nil {
		params = append(params, "immutable=1") // otherwise SQLite creates -wal and -shm files
	}

	db := openOne(path, params...)
	if Code(touch(db)) != sqlite3.SQLITE_CANTOPEN {
		return db, nil // other errors are reported on use
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	return openWithoutLocks(path, params), nil
}

// touch runs a first read of a database and returns its error.
func touch(db *sql.DB) error {
	var version int
	return db.QueryRow("pragma schema_version").Scan(&version)
}

// openWithoutLocks opens a database on a read-only disk, which may not support locks. With an
// exclusive lock, SQLite keeps the index of the log in memory. The pragma must precede any
// statement that reads the file.
func openWithoutLocks(path string, params []string) *sql.DB {
	vfs := "unix-none"
	if runtime.GOOS == "windows" {
		vfs = "win32-none"
	}
	first := "?vfs=" + vfs + "&_pragma=locking_mode(exclusive)&"
	return openPool(connector{driver: &msqlite.Driver{}, dsn: strings.Replace(dsn(path, params...), "?", first, 1)}, 1)
}

// OpenShared opens a database for reading while other processes may write it. If the file is not
// writable, as on a read-only disk, it opens the database with OpenReadOnly. The caller must close
// it.
func OpenShared(path string) (*sql.DB, error) {
	if empty, err := probe(path); err != nil || empty {
		return OpenReadOnly(path) // returns the detailed error
	}

	db := openOne(path, existing, "_pragma=query_only(1)", "_pragma=cell_size_check(1)")
	if !StorageFailed(touch(db)) {
		return db, nil // other errors are reported on use
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	return OpenReadOnly(path)
}

// Verify returns a *CorruptError unless the file is an intact database with the given application
// id. If thorough is set, it also compares every index with its table, which takes about three
// times as long.
func Verify(ctx context.Context, path string, applicationID int32, thorough bool) (err error) {
	db, err := OpenReadOnly(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	if err := checkApplicationID(ctx, db, path, applicationID); err != nil {
		return err
	}
	return check(ctx, db, path, thorough)
}

// checkApplicationID returns a *CorruptError if the application id of the file is not want.
func checkApplicationID(ctx context.Context, db *sql.DB, path string, want int32) error {
	var id int32
	if err := db.QueryRowContext(ctx, "pragma application_id").Scan(&id); err != nil {
		return openError(path, err)
	}
	if id != want {
		return &CorruptError{path, fmt.Sprintf("it belongs to another program (application id %#x, not %#x)", id, want)}
	}
	return nil
}

// check reads the whole file and returns a *CorruptError if it is damaged.
func check(ctx context.Context, db *sql.DB, path string, thorough bool) error {
	pragma := "pragma quick_check(1)"
	if thorough {
		pragma = "pragma integrity_check(1)"
	}

	var verdict string
	if err := db.QueryRowContext(ctx, pragma).Scan(&verdict); err != nil {
		return openError(path, err)
	}
	if verdict != "ok" {
		return &CorruptError{path, "it is damaged: " + verdict}
	}

	return nil
}

// Check reads the whole file of an open database and returns a *CorruptError if it is damaged.
func (db *DB) Check(ctx context.Context) error { return check(ctx, db.read, db.path, false) }
