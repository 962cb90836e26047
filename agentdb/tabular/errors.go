package tabular

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Error says why a file, or what was asked of it, cannot be used.
type Error struct {
	Field   string // the argument at fault: "path" or "format"
	Message string
}

func (e *Error) Error() string { return e.Message }

func invalid(field, format string, args ...any) *Error {
	return &Error{Field: field, Message: fmt.Sprintf(format, args...)}
}

// SyntaxError is a fault at one place of a file.
type SyntaxError struct {
	Line   int // of a workbook: the row
	Column int // in characters from 1; 0 where the fault is in no one place of the line
	Text   string
}

func (e *SyntaxError) Error() string {
	if e.Column > 0 {
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Text)
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Text)
}

// lineOf is the line of a byte offset, from 1.
func lineOf(s string, at int) int { return 1 + strings.Count(s[:min(at, len(s))], "\n") }

// columnInLine counts the characters of a line up to a byte offset, from 1. end ends lines.
func columnInLine(data string, at int, end byte) int {
	return 1 + utf8.RuneCountInString(data[strings.LastIndexByte(data[:at], end)+1:at])
}
