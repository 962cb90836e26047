package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"rouse/agentdb/sqlite"
)

// openPostgres brings the schema of a PostgreSQL database up to date. Processes that start at
// the same time wait for each other on an advisory lock.
func (l *Ledger) openPostgres(ctx context.Context, db *sql.DB) error {
	if db == nil {
		return errors.New("ledger: neither a file nor a database was given")
	}

	dir, err := fs.Sub(migrations, "migrations/postgres")
	if err != nil {
		return err
	}

	steps, err := sqlite.ReadMigrations(dir)
	if err != nil {
		return err
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("cannot reach the ledger's database: %w", err)
	}
	defer tx.Rollback()

	// Held until the commit, so that a second process finds the schema complete.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("select pg_advisory_xact_lock(%d)", applicationID)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "create table if not exists schema_version (version bigint not null)"); err != nil {
		return err
	}

	var at int
	if err := tx.QueryRowContext(ctx, "select coalesce(max(version), 0) from schema_version").Scan(&at); err != nil {
		return err
	}
	if at > len(steps) {
		return fmt.Errorf("the ledger's database was made by a newer rouse (schema %d, this one knows %d)", at, len(steps))
	}

	for _, m := range steps[at:] {
		if _, err := tx.ExecContext(ctx, m.SQL); err != nil {
			return fmt.Errorf("migration %s: %w", m.Name, err)
		}
		if _, err := tx.ExecContext(ctx, "insert into schema_version values ($1)", m.Version); err != nil {
			return err
		}
	}

	if err := tx.Commit(); err != nil {
		return err
	}

	// The caller owns db: closing the ledger ends its writer, and leaves the connections.
	l.db = db
	if err := l.findClass(ctx); err != nil {
		return err
	}
	l.read, l.forUpdate, l.storedPath = reader{DB: db}, " for update", storable
	l.statements.db = l.read
	if l.writer, err = sqlite.NewWriter(ctx, db, sqlite.WriterOptions{SanitizeText: storable, Begin: l.fence}); err != nil {
		return err
	}

	l.close, l.runIDs = l.writer.Close, countPostgres
	return nil
}

// storable makes a text acceptable to PostgreSQL: UTF-8 without zero bytes, which the output of
// tools and models, and names of files, may not be.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
