package sqlite

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"strconv"
	"strings"

	msqlite "modernc.org/sqlite"
)

// linearFunctions replaces SQLite functions with versions that take time proportional to their
// arguments. SQLite's own instr, replace and trim can take hours for texts of megabytes, and a
// deadline does not interrupt them. The driver cannot mark the replacements as innocuous.
// Connections that use them therefore trust the schema, and the authorizer checks the schema's
// code.
var linearFunctions = []struct {
	name string
	args int32
	do   func(*msqlite.FunctionContext, []driver.Value) (driver.Value, error)
}{
	{"instr", 2, instr},
	{"replace", 3, replace},
	{"trim", 2, trimmer(strings.TrimFunc)},
	{"ltrim", 2, trimmer(strings.TrimLeftFunc)},
	{"rtrim", 2, trimmer(strings.TrimRightFunc)},
	{"unhex", 2, func(*msqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return nil, errors.New("unhex takes one argument here; take other characters out with replace()")
	}},
}

var errTooBig = errors.New("string or blob too big")

func modelDriver() (*msqlite.Driver, error) {
	d := &msqlite.Driver{}
	for _, f := range linearFunctions {
		if err := d.RegisterDeterministicScalarFunction(f.name, f.args, f.do); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// asText converts a value to text as SQLite does. ok is false for NULL.
func asText(v driver.Value) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		// Format a REAL like SQLite, with 15 digits. Whole numbers get ".0" below.
		text = strconv.FormatFloat(v, 'g', 15, 64)
		if !strings.ContainsAny(text, ".eIN") {
			text += ".0"
		}
		return text, true
	}
	return "", false
}

func instr(_ *msqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	in, isBlob := args[0].([]byte)
	part, both := args[1].([]byte)
	if isBlob && both {
		return int64(bytes.Index(in, part) + 1), nil
	}

	text, ok := asText(args[0])
	other, too := asText(args[1])
	if !ok || !too {
		return nil, nil
	}

	at := strings.Index(text, other)
	if at < 0 {
		return int64(0), nil
	}

	// In a text, SQLite counts characters, starting at 1.
	return int64(len([]rune(text[:at])) + 1), nil
}

func replace(_ *msqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	text, a := asText(args[0])
	old, b := asText(args[1])
	by, c := asText(args[2])
	switch {
	case !a || !b || !c:
		return nil, nil
	case old == "":
		return text, nil
	// Check before building the result: a few kilobytes of arguments can produce gigabytes.
	case len(text)+strings.Count(text, old)*(len(by)-len(old)) > MaxLength:
		return nil, errTooBig
	}

	return strings.ReplaceAll(text, old, by), nil
}

func trimmer(trim func(string, func(rune) bool) string) func(*msqlite.FunctionContext, []driver.Value) (driver.Value, error) {
	return func(_ *msqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		text, ok := asText(args[0])
		cut, too := asText(args[1])
		if !ok || !too {
			return nil, nil
		}

		set := map[rune]bool{}
		for _, r := range cut {
			set[r] = true
		}
		return trim(text, func(r rune) bool { return set[r] }), nil
	}
}
