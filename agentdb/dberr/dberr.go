// Package dberr defines the error of a request that an agent's database refuses. It rewords
// messages of SQLite for the agent.
package dberr

import (
	"errors"
	"fmt"
	"strings"

	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"rouse/internal/storage/sqlite"
)

// Kinds of Error, as in a tool's envelope.
const (
	KindInvalid  = "invalid_args"
	KindNotFound = "not_found"
	KindRejected = "rejected"
	KindTimeout  = "timeout"
)

// Error is a refused request. The request has written nothing.
type Error struct {
	Kind      string // one of the Kind constants
	Message   string
	Field     string // argument that caused the error, or ""
	Place     string // line, column and excerpt of the SQL with a caret; "" if unknown
	Retryable bool   // other arguments or a later retry can succeed
}

func (e *Error) Error() string { return e.Message }

// Text returns the message with the place.
func (e *Error) Text() string { return e.Message + e.Place }

// At sets the place in the SQL and returns the error.
func (e *Error) At(place string) *Error {
	e.Place = place
	return e
}

// Invalid returns the error for an invalid argument. field is "" if no single argument is invalid.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Kind: KindInvalid, Message: fmt.Sprintf(format, args...), Field: field, Retryable: true}
}

// SQLText returns SQLite's own message without the driver's wrapping: "SQL logic error: no such
// table: x (1)" becomes "no such table: x".
func SQLText(err error) string {
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

// Refused reports whether SQLite refused a row because of its values.
func Refused(err error) bool {
	switch sqlite.Code(err) {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return true
	}
	return false
}

// RowText explains in plain words why SQLite refused a row.
func RowText(err error) string {
	text := SQLText(err)
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
