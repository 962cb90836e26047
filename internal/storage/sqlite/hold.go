package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// Hold keeps what is written in the log: until it is released nothing of it gets into the file
// itself, also when the database is closed.
type Hold struct {
	db *sql.DB
	tx *sql.Tx
}

// Hold begins to keep the file as it is. The log has to be empty: it holds what comes from now on.
func (db *DB) Hold(ctx context.Context) (*Hold, error) {
	h := &Hold{db: openOne(db.path, "mode=ro", "_pragma=query_only(1)")}

	// A snapshot of a time when all was in the file: SQLite may not write over it while somebody
	// reads it. The connection cannot write, so if it is closed last, nobody empties the log on
	// closing.
	var err error
	if h.tx, err = h.db.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{ReadOnly: true}); err != nil {
		return nil, errors.Join(openError(db.path, err), h.db.Close())
	}

	var version int
	if err := h.tx.QueryRowContext(ctx, "pragma schema_version").Scan(&version); err != nil {
		return nil, errors.Join(openError(db.path, err), h.Release())
	}

	return h, nil
}

// Release lets the log be brought into the file. After the database was closed it only ends the
// hold, and the log stays.
func (h *Hold) Release() error {
	return errors.Join(h.tx.Rollback(), h.db.Close())
}
