// Package dberr has the error of a call that an agent's database refuses, and puts the messages of
// SQLite into words for the agent.
package dberr

import (
	"errors"
	"fmt"
	"strings"

	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"rouse/internal/storage/sqlite"
)

// Kinds of Error. They are those of a tool's envelope (OSA-10).
const (
	KindInvalid  = "invalid_args"
	KindNotFound = "not_found"
	KindRejected = "rejected"
	KindTimeout  = "timeout"
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

// At sets the place in the SQL and returns the error.
func (e *Error) At(place string) *Error {
	e.Place = place
	return e
}

// Invalid returns the error for an argument that is at fault; field is "" if it is not one argument.
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

// RowText returns why a row was refused, in words for a person.
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
