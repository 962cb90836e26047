package agentdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

// Kinds of Error; they are those of a tool's envelope (OSA-10).
const (
	kindInvalid  = "invalid_args"
	kindNotFound = "not_found"
	kindRejected = "rejected"
	kindTimeout  = "timeout"
)

// Error is a request that cannot be done as it was made. Nothing of it was written.
type Error struct {
	Kind      string // invalid_args, not_found, rejected or timeout
	Message   string
	Field     string // the argument at fault, "" when it is not one
	Place     string // where in the SQL: line, column and an excerpt with a caret; "" when unknown
	Retryable bool   // whether other arguments, or a later try, can succeed
}

func (e *Error) Error() string { return e.Message }

// Text is the message with the place.
func (e *Error) Text() string { return e.Message + e.Place }

func (e *Error) at(place string) *Error {
	e.Place = place
	return e
}

func invalid(field, format string, args ...any) *Error {
	return &Error{Kind: kindInvalid, Message: fmt.Sprintf(format, args...), Field: field, Retryable: true}
}

// corrupt reports whether SQLite found that the file is damaged.
func corrupt(err error) bool {
	code := sqlite.Code(err)
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

// sqlText is SQLite's own message without the driver's wrapping: "SQL logic error: no such
// table: x (1)" becomes "no such table: x".
func sqlText(err error) string {
	var e *msqlite.Error
	if !errors.As(err, &e) {
		return err.Error()
	}

	text := e.Error()
	if i := strings.LastIndex(text, " ("); i >= 0 {
		text = text[:i]
	}

	for _, prefix := range []string{"SQL logic error: ", "constraint failed: ", "authorization denied: "} {
		text = strings.TrimPrefix(text, prefix)
	}

	return text
}

// refused says whether SQLite refused a row because of what is in it.
func refused(err error) bool {
	switch sqlite.Code(err) {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return true
	}
	return false
}

// rowErrorText says for a person why a row was refused.
func rowErrorText(err error) string {
	text := sqlText(err)
	for sign, say := range map[string]string{
		"UNIQUE constraint failed: ":   "another row already has the same ",
		"NOT NULL constraint failed: ": "a value is missing in ",
		"datatype mismatch":            "the primary key must be a whole number",
	} {
		if rest, ok := strings.CutPrefix(text, sign); ok {
			return say + rest
		}
	}

	return text
}

// explain makes the error of a failed write complete.
func (db *DB) explain(ctx context.Context, err error) error {
	var bad *Error
	switch code := sqlite.Code(err); {
	case errors.As(err, &bad), ctx.Err() != nil:
		return err
	case corrupt(err):
		return db.quarantine(err)
	case code == sqlite3.SQLITE_FULL:
		return db.diskFullError(ctx, err, 0)
	case code == sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%s cannot be written; look at the owner and the permissions of the file and of its folder, and whether its disk is mounted to be read only: %w", db.path, err)
	case refused(err):
		return invalid("", "%s", rowErrorText(err))
	}

	return fmt.Errorf("cannot write to %s: %w", db.path, err)
}

// quarantine keeps a database that SQLite found damaged from further use.
func (db *DB) quarantine(err error) error {
	return db.marker.Quarantine(&sqlite.CorruptError{Path: db.path, Reason: "it is damaged (" + sqlText(err) + ")"})
}

// diskFullError says what SQLite means by a full database. limit is the quota that bounded the
// write, 0 when none did.
func (db *DB) diskFullError(ctx context.Context, err error, limit int64) error {
	// What a failed write put into the log keeps its space there although it was rolled back,
	// and others need that space, the ledger first of all.
	_, _ = db.db.Read().ExecContext(context.WithoutCancel(ctx), "pragma wal_checkpoint(truncate)") // only helps; the error itself is returned
	const lastID = `select name from sqlite_sequence where seq = 9223372036854775807 limit 1`
	var table string
	switch e := db.db.Read().QueryRowContext(ctx, lastID).Scan(&table); {
	case e == nil:
		return invalid("", "the table %s has given out the largest id there is, so SQLite has no next one, and nothing was written: give each row an id of its own, or make a new table and copy the rows", table)
	case limit > 0:
		return &Error{Kind: kindRejected, Message: fmt.Sprintf(
			"the write was rolled back: it would take the database to more than twice its quota of %s, or the disk is full. Write less at once; the owner looks at the free space beside %s, and can raise database.quota of this agent", text.Size(limit), db.path)}
	}

	return fmt.Errorf("the disk is full, so nothing was written to %s; free some space and try again: %w", db.path, err)
}
