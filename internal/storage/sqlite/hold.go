package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// Hold keeps all writes in the log and out of the database file until it is released. This also
// holds while the database is closed.
type Hold struct {
	db *sql.DB
	tx *sql.Tx
}

// Hold starts a Hold. The log must be empty, because a Hold applies only to later writes.
func (db *DB) Hold(ctx context.Context) (*Hold, error) {
	h := &Hold{db: openOne(db.path, "mode=ro", "_pragma=query_only(1)")}

	// SQLite cannot checkpoint later writes while this snapshot is open. The connection is
	// read-only, so SQLite does not empty the log if this connection is the last one to close.
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

// Release ends the hold, so that checkpoints copy the log into the file again. If the database was
// closed before, the log stays.
func (h *Hold) Release() error {
	return errors.Join(h.tx.Rollback(), h.db.Close())
}
