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

// Absent stands for a value that a row does not have, which is not the same as NULL: the
// default of the column applies.
type Absent struct{}

// nested is the text of a list or an object inside a row; it is stored as it is.
type nested string

// Affinity is what a column does to the values that are stored in it, as SQLite has it.
type Affinity uint8

// The affinities.
const (
	AffinityText Affinity = iota
	AffinityNumber
	AffinityNone
)

// Kind is what the values of a column have in common, as far as they have been seen.
type Kind uint8

// The order matters to merge: no value of a kind is narrower than one of a kind before it.
const (
	unseen  Kind = iota // no value yet
	boolean             // JSON's true and false
	integer             // exact as a float64 as well
	long                // an int64 that a float64 would round
	real
	textual
)

// exactFloat is up to where every integer is exact as a float64.
const exactFloat = 1 << 53

// IsInteger says whether a column of integers holds all values without loss.
func (k Kind) IsInteger() bool { return k == boolean || k == integer || k == long }

// IsReal says whether a column of floating point numbers does, and one of integers does not.
func (k Kind) IsReal() bool { return k == real }

// merge is the narrowest kind that holds both without loss. A long and a real become text: the
// digits of the one do not fit into the other.
func (k Kind) merge(other Kind) Kind {
	low, high := min(k, other), max(k, other)
	switch {
	case low == high || low == unseen:
		return high
	// JSON mixes true and 1; SQLite stores both as 1.
	case low == boolean && high == integer, low == boolean && high == long, low == integer && high == long:
		return high
	case low == integer && high == real:
		return real
	}

	return textual
}

// kindOfCell says what a cell of a CSV file looks like. Only what is written as a program
// would write it back counts as a number: 007, +1, 1e5 and 1,5 are text.
func kindOfCell(cell string) Kind {
	if cell == "" {
		return unseen
	}

	whole, fraction, decimal := strings.Cut(strings.TrimPrefix(cell, "-"), ".")
	// Leading zeros mark codes and telephone numbers.
	if !digits(whole) || whole[0] == '0' && len(whole) > 1 {
		return textual
	}

	if decimal {
		// 15 significant digits are what a float64 gives back as they were.
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

// ReadsAsNumber says whether SQLite stores a text as a number in a column of numbers.
func ReadsAsNumber(s string) bool {
	s = strings.Trim(s, " \t\n\v\f\r")
	if s == "" || strings.Trim(s, "0123456789.eE+-") != "" {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

// cellValue is what a cell of a CSV file is bound as. An empty cell is an empty text in a
// text column and NULL elsewhere.
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

	return cell // SQLite keeps what it cannot convert as it is
}

// WholeFloat turns a float that came by way of JSON into what SQLite is to store.
// Whole floats become integers: JSON does not tell 3 from 3.0, and a text column would
// otherwise hold "3.0".
func WholeFloat(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) <= exactFloat {
		return int64(f)
	}
	return f
}

// Number keeps every digit: what neither an int64 nor a float64 can hold stays text.
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

// scalarKind is the kind of a nil, bool, string, json.Number, nested or absent.
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

// scalarValue is what such a value is bound as.
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

// CellText is a value in a text file.
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

// floatText keeps every digit, and a point or an exponent: 3.0 is not the integer 3.
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

// AppendText writes a JSON string. encoding/json does the rare ones.
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
