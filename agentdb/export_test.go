package agentdb

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// GuardedConn returns a connection like that of queries.
func GuardedConn(ctx context.Context, db *DB) (*sql.Conn, error) {
	return db.readers.conn(ctx, false)
}

// Exec changes the file as a later db_execute would.
func Exec(ctx context.Context, db *DB, statements ...string) error {
	return db.db.Do(ctx, func(tx *sqlite.Tx) error {
		for _, statement := range statements {
			if _, err := tx.SQL().ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// System reads one value of the host's own tables, which queries cannot read.
func System(ctx context.Context, db *DB, query string) (out string, err error) {
	err = db.db.Read().QueryRowContext(ctx, query).Scan(&out)
	return out, err
}

// ReadAll reads every table completely, including the host's own tables.
func ReadAll(ctx context.Context, db *DB) error {
	for _, table := range []string{"expenses", "_tables_meta", "_calls", "_migrations", "_views", "_undone", "_owner"} {
		rows, err := db.db.Read().QueryContext(ctx, "select * from "+table)
		if err != nil {
			return db.Health.explain(ctx, err)
		}

		for rows.Next() {
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return db.Health.explain(ctx, err)
		}
	}
	return nil
}

// MarkOpen makes a closed database look like one whose process was killed.
func MarkOpen(path string) error {
	return dbfile.WriteMarker(path, dbfile.Marker{State: dbfile.StateOpen})
}

// ChangeOutside changes a closed database like another program.
func ChangeOutside(t testing.TB, path, statement string) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: ApplicationID})
	if err == nil {
		err = db.Do(t.Context(), func(tx *sqlite.Tx) error {
			_, err := tx.Exec(statement)
			return err
		})
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Flush copies everything from the WAL to the file.
func Flush(t testing.TB, db *DB) {
	t.Helper()
	if _, err := db.db.Read().ExecContext(t.Context(), "pragma wal_checkpoint(truncate)"); err != nil {
		t.Fatal(err)
	}
}

// AddMigration adds a second migration, as in a later version, until the test ends.
func AddMigration(t *testing.T, second string) {
	was := migrations
	first, err := fs.ReadFile(was, "migrations/0001_agent.sql")
	if err != nil {
		t.Fatal(err)
	}
	migrations = fstest.MapFS{"migrations/0001_agent.sql": {Data: first}, "migrations/0002_second.sql": {Data: []byte(second)}}
	t.Cleanup(func() { migrations = was })
}

// FileSize returns the size of a file, or 0 if it does not exist.
func FileSize(path string) int64 { return dbfile.Size(path) }

// Measure reads a file as for its checksum.
func Measure(path string) error {
	_, _, err := dbfile.Checksum(path)
	return err
}

// Forget drops all cached schema data.
func Forget(db *DB) error {
	db.readers.mu.Lock()
	defer db.readers.mu.Unlock()

	var errs []error
	for deleted, r := range db.readers.pools {
		errs = append(errs, r.Close())
		delete(db.readers.pools, deleted)
	}
	return errors.Join(errs...)
}
