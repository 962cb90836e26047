package agentdb

import (
	"context"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"rouse/agentdb/dberr"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

// Error is the error of a rejected call.
type Error = dberr.Error

// explain turns the error of a failed write into a message with a remedy. It quarantines the
// database if SQLite reports corruption.
func (h *Health) explain(ctx context.Context, err error) error {
	var bad *dberr.Error
	switch code := sqlite.Code(err); {
	case errors.As(err, &bad), ctx.Err() != nil:
		return err
	case corrupt(err):
		return h.quarantine(err)
	case code == sqlite3.SQLITE_FULL:
		return h.diskFullError(ctx, err, 0)
	case code == sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%s cannot be written; look at the owner and the permissions of the file and of its folder, and whether its disk is mounted to be read only: %w", h.path, err)
	case dberr.Refused(err):
		return dberr.Invalid("", "%s", dberr.RowText(err))
	}

	return fmt.Errorf("cannot write to %s: %w", h.path, err)
}

// quarantine prevents further use of a database that SQLite found damaged.
func (h *Health) quarantine(err error) error {
	return h.marker.Quarantine(&sqlite.CorruptError{Path: h.path, Reason: "it is damaged (" + dberr.SQLText(err) + ")"})
}

// diskFullError returns the error for SQLITE_FULL, which has several causes. limit is the quota
// that limited the write. Zero means no quota.
func (h *Health) diskFullError(ctx context.Context, err error, limit int64) error {
	// The WAL keeps the space of a write that was rolled back. Truncate it, because other files
	// on the disk need the space, above all the ledger.
	_, _ = h.db.Read().ExecContext(context.WithoutCancel(ctx), "pragma wal_checkpoint(truncate)") // best effort
	const lastID = `select name from sqlite_sequence where seq = 9223372036854775807 limit 1`
	var table string
	switch e := h.db.Read().QueryRowContext(ctx, lastID).Scan(&table); {
	case e == nil:
		return dberr.Invalid("", "the table %s has given out the largest id there is, so SQLite has no next one, and nothing was written: give each row an id of its own, or make a new table and copy the rows", table)
	case limit > 0:
		return &dberr.Error{Kind: dberr.KindRejected, Message: fmt.Sprintf(
			"the write was rolled back: it would take the database to more than twice its quota of %s, or the disk is full. Write less at once; the owner looks at the free space beside %s, and can raise database.quota of this agent", text.Size(limit), h.path)}
	}

	return fmt.Errorf("the disk is full, so nothing was written to %s; free some space and try again: %w", h.path, err)
}

// corrupt reports whether SQLite found the file damaged.
func corrupt(err error) bool {
	code := sqlite.Code(err)
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}
