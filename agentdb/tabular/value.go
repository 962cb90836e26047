package tabular

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Absent is the value of a key that a row does not have. Unlike NULL, it selects the default of the
// column.
type Absent struct{}

// nested is the JSON text of a list or an object in a row. It is stored as text.
type nested string

// Affinity is the SQLite type affinity of a column.
type Affinity uint8

// Affinities of columns.
const (
	AffinityText Affinity = iota
	AffinityNumber
	AffinityNone
)

// Kind is the narrowest type that holds all known values of a column.
type Kind uint8

// merge relies on this order: each kind is at least as wide as the kinds before it.
const (
	unseen  Kind = iota // no value yet
	boolean             // true and false in JSON
	integer             // exact as a float64, too
	long                // int64 that a float64 would round
	real
	textual
)

// exactFloat is the limit up to which a float64 represents every integer exactly.
const exactFloat = 1 << 53

// IsInteger reports whether an integer column holds all values without loss.
func (k Kind) IsInteger() bool { return k == boolean || k == integer || k == long }

// IsReal reports whether the values need a floating point column.
func (k Kind) IsReal() bool { return k == real }

// merge returns the narrowest kind that holds both kinds without loss. A long and a real become
// text, because neither type keeps the digits of the other.
func (k Kind) merge(other Kind) Kind {
	low, high := min(k, other), max(k, other)
	switch {
	case low == high || low == unseen:
		return high
	// SQLite stores true in JSON as 1, so booleans and integers can share a column.
	case low == boolean && high == integer, low == boolean && high == long, low == integer && high == long:
		return high
	case low == integer && high == real:
		return real
	}

	return textual
}

// kindOfCell returns the kind of a CSV cell. A cell is a number only if a program would write that
// number in the same way: 007, +1, 1e5 and 1,5 are text.
func kindOfCell(cell string) Kind {
	if cell == "" {
		return unseen
	}

	whole, fraction, decimal := strings.Cut(strings.TrimPrefix(cell, "-"), ".")
	// Codes and telephone numbers have leading zeros.
	if !digits(whole) || whole[0] == '0' && len(whole) > 1 {
		return textual
	}

	if decimal {
		// A float64 preserves 15 significant digits.
		if !digits(fraction) || len(whole)+len(fraction) > 15 {
			return textual
		}
		return real
	}

	if cell == "-0" {
		return textual
	}

	n, err := strconv.ParseInt(cell, 10, 64)
	if err != nil {
		return textual
	}

	return integerKind(n)
}

func integerKind(n int64) Kind {
	if n > exactFloat || n < -exactFloat {
		return long
	}
	return integer
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// ReadsAsNumber reports whether SQLite stores a text as a number in a numeric column.
func ReadsAsNumber(s string) bool {
	s = strings.Trim(s, " \t\n\v\f\r")
	if s == "" || strings.Trim(s, "0123456789.eE+-") != "" {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

// cellValue returns the value of a CSV cell for a column. An empty cell is an empty text in a text
// column, and NULL in other columns.
func cellValue(cell string, to Affinity) any {
	if to != AffinityNumber {
		return cell
	}

	switch kindOfCell(cell) {
	case unseen:
		return nil
	case integer, long:
		n, _ := strconv.ParseInt(cell, 10, 64) // kindOfCell has parsed it
		return n
	case real:
		f, _ := strconv.ParseFloat(cell, 64)
		return f
	}

	return cell // SQLite stores a value that it cannot convert unchanged
}

// WholeFloat converts a float from JSON to the value that SQLite stores. A whole float becomes an
// integer, because JSON does not distinguish 3 from 3.0, and a text column would otherwise hold
// "3.0".
func WholeFloat(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) <= exactFloat {
		return int64(f)
	}
	return f
}

// Number converts a JSON number without loss. A number that fits neither an int64 nor a float64
// stays text.
func Number(n json.Number) any {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return i
	}

	if numberKind(n) == real {
		if f, err := n.Float64(); err == nil {
			return WholeFloat(f)
		}
	}
	return n.String()
}

// scalarKind returns the kind of a nil, bool, string, json.Number, nested or absent value.
func scalarKind(v any) Kind {
	switch v := v.(type) {
	case bool:
		return boolean
	case json.Number:
		return numberKind(v)
	case string, nested:
		return textual
	}
	return unseen
}

func numberKind(n json.Number) Kind {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil && n != "-0" {
		return integerKind(i)
	}
	if !strings.ContainsAny(n.String(), ".eE") {
		return textual // more digits than an int64 or a float64 keeps
	}
	if f, err := n.Float64(); err != nil || math.IsInf(f, 0) {
		return textual
	}

	return real
}

// scalarValue returns such a value for a column of the given affinity.
func scalarValue(v any, to Affinity) any {
	switch v := v.(type) {
	case bool:
		if to == AffinityText {
			return strconv.FormatBool(v)
		}
		if v {
			return int64(1)
		}
		return int64(0)
	case json.Number:
		if to == AffinityText {
			return v.String()
		}
		return Number(v)
	case nested:
		return string(v)
	default:
		return v
	}
}

// CellText formats a value for a text file.
func CellText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	}
	return v.(string)
}

// floatText formats a float with all its digits and a point or an exponent, because 3.0 is not the
// integer 3.
func floatText(f float64) string {
	if math.IsInf(f, 0) {
		return fmt.Sprint(f)
	}

	format := byte('f')
	if size := math.Abs(f); size != 0 && (size < 1e-5 || size >= 1e15) {
		format = 'g'
	}

	text := strconv.FormatFloat(f, format, -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}

	return text
}

// AppendText appends s as a JSON string. It uses encoding/json only for strings with special
// characters.
func AppendText(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(s) // a string always has a JSON form
			return append(out, quoted...)
		}
	}

	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}
