package agentdb

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"rouse/internal/text"
)

// kind is what the values of a column have in common, as far as they have been seen.
type kind uint8

const (
	unseen  kind = iota // no value yet
	boolean             // JSON's true and false
	integer             // exact as a float64 as well
	long                // an int64 that a float64 would round
	real
	textual
)

const exactFloat = 1 << 53 // integers up to here are exact as float64

// merge is the narrowest kind that holds both without loss.
func (k kind) merge(other kind) kind {
	low, high := min(k, other), max(k, other)
	switch {
	case low == high || low == unseen:
		return high
	case low == boolean && high == integer, low == boolean && high == long, low == integer && high == long:
		return high
	case low == integer && high == real:
		return real
	}

	return textual
}

// column is the type of a column that holds values of a kind.
func (k kind) column() string {
	switch k {
	case boolean, integer, long:
		return typeInteger
	case real:
		return typeReal
	}
	return typeText
}

// sniff says what a cell of a CSV file looks like. Only what is written as a program
// would write it back counts as a number: 007, +1, 1e5 and 1,5 are text.
func sniff(cell string) kind {
	if cell == "" {
		return unseen
	}

	whole, fraction, decimal := strings.Cut(strings.TrimPrefix(cell, "-"), ".")
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

func integerKind(n int64) kind {
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

// affinity is what SQLite does to values of a column, by the rules of its documentation.
type affinity uint8

const (
	affinityText affinity = iota
	affinityNumber
	affinityNone
)

func affinityOf(declared string) affinity {
	declared = strings.ToUpper(declared)
	has := func(part string) bool { return strings.Contains(declared, part) }
	switch {
	case has("INT"):
		return affinityNumber
	case has("CHAR"), has("CLOB"), has("TEXT"):
		return affinityText
	case has("BLOB"), declared == "":
		return affinityNone
	}

	return affinityNumber
}

// isNumber says whether a column was declared for numbers and nothing else. Dates are not:
// their affinity is that of numbers, but their values are texts.
func isNumber(declared string) bool {
	declared = strings.ToUpper(strings.TrimSpace(typeLength.ReplaceAllString(declared, "")))
	if declared == typeNumeric || declared == "DECIMAL" {
		return true
	}

	for _, part := range []string{"INT", "REAL", "FLOAT", "DOUBLE"} {
		if strings.Contains(declared, part) {
			return true
		}
	}
	return false
}

// readsAsNumber says whether SQLite stores a text as a number in a column of numbers.
func readsAsNumber(s string) bool {
	s = strings.Trim(s, " \t\n\v\f\r")
	if s == "" || strings.Trim(s, "0123456789.eE+-") != "" {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

// altered counts texts of a column that are more than the numbers they become.
type altered struct {
	n     int
	first string
}

func (a *altered) look(cell string) {
	if keepsDigits(cell) {
		return
	}
	if a.n++; a.n == 1 {
		a.first = cell
	}
}

// keepsDigits says whether a number gives back what was written: 007 and +49 do not, and
// neither do more digits than a number has.
func keepsDigits(cell string) bool {
	cell = strings.TrimPrefix(strings.Trim(cell, " \t\n\v\f\r"), "-")
	if strings.HasPrefix(cell, "+") || len(cell) > 1 && cell[0] == '0' && cell[1] >= '0' && cell[1] <= '9' {
		return false
	}
	if _, err := strconv.ParseInt(cell, 10, 64); err == nil {
		return true
	}

	mantissa, _, _ := strings.Cut(strings.ToLower(cell), "e")
	return len(strings.TrimLeft(strings.Replace(mantissa, ".", "", 1), "0")) <= 15
}

// decimalComma ends the message about a cell like 12,30.
func decimalComma(cell string) string {
	if readsAsNumber(strings.Replace(strings.ReplaceAll(cell, ".", ""), ",", ".", 1)) {
		return "; numbers have a decimal point, or the column has to be TEXT"
	}
	return ""
}

// quoteCell shows a cell in a message.
func quoteCell(cell string) string {
	return strconv.Quote(text.Truncate(cell, 40))
}

// cellValue is what a cell of a CSV file is bound as. An empty cell is an empty text in a
// text column and NULL elsewhere.
func cellValue(cell string, to affinity) any {
	if to != affinityNumber {
		return cell
	}

	switch sniff(cell) {
	case unseen:
		return nil
	case integer, long:
		n, _ := strconv.ParseInt(cell, 10, 64) // sniff has parsed it
		return n
	case real:
		f, _ := strconv.ParseFloat(cell, 64)
		return f
	}

	return cell // SQLite keeps what it cannot convert as it is
}

// wholeFloat turns a float that came by way of JSON into what SQLite is to store.
// Whole floats become integers: JSON does not tell 3 from 3.0, and a text column would
// otherwise hold "3.0".
func wholeFloat(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) <= exactFloat {
		return int64(f)
	}
	return f
}
