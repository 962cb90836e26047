package agentdb

import (
	"context"
	"database/sql"

	"rouse/agentdb/sqlite"
)

// GuardedConn lends a connection as queries use it.
func GuardedConn(ctx context.Context, db *DB) (*sql.Conn, error) { return db.conn(ctx, false) }

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

// System reads one value of the host's own tables, which queries cannot.
func System(ctx context.Context, db *DB, query string) (out string, err error) {
	err = db.db.Read().QueryRowContext(ctx, query).Scan(&out)
	return out, err
}

// OpenFiles counts the files that a pool has open.
func OpenFiles(p *Pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.slots)
}
