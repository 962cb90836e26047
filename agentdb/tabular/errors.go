package tabular

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Error is the error for a file or a request that cannot be used.
type Error struct {
	Field   string // argument that caused the error: "path" or "format"
	Message string
}

func (e *Error) Error() string { return e.Message }

func invalid(field, format string, args ...any) *Error {
	return &Error{Field: field, Message: fmt.Sprintf(format, args...)}
}

// SyntaxError is an error at one place of a file.
type SyntaxError struct {
	Line   int // in a workbook: the row
	Column int // in characters, from 1; 0 if unknown
	Text   string
}

func (e *SyntaxError) Error() string {
	if e.Column > 0 {
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Text)
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Text)
}

// lineOf returns the line of a byte offset, from 1.
func lineOf(s string, at int) int { return 1 + strings.Count(s[:min(at, len(s))], "\n") }

// columnInLine returns the column of a byte offset in characters, from 1. end is the last byte of a
// line ending.
func columnInLine(data string, at int, end byte) int {
	return 1 + utf8.RuneCountInString(data[strings.LastIndexByte(data[:at], end)+1:at])
}
