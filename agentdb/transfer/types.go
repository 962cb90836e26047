package transfer

import (
	"strconv"
	"strings"

	"rouse/agentdb/schema"
	"rouse/agentdb/tabular"
	"rouse/internal/text"
)

// columnOf returns the column type for values of a kind.
func columnOf(k tabular.Kind) string {
	switch {
	case k.IsInteger():
		return schema.TypeInteger
	case k.IsReal():
		return schema.TypeReal
	}
	return schema.TypeText
}

// affinityOf returns the affinity of a declared column type, by SQLite's rules.
func affinityOf(declared string) tabular.Affinity {
	declared = strings.ToUpper(declared)
	has := func(part string) bool { return strings.Contains(declared, part) }
	switch {
	// The order is SQLite's: a CHARINT is an INTEGER.
	case has("INT"):
		return tabular.AffinityNumber
	case has("CHAR"), has("CLOB"), has("TEXT"):
		return tabular.AffinityText
	case has("BLOB"), declared == "":
		return tabular.AffinityNone
	}

	return tabular.AffinityNumber
}

// isNumber reports whether a column was declared for numbers only. Date columns have a numeric
// affinity but hold texts, so isNumber returns false for them.
func isNumber(declared string) bool {
	declared = strings.ToUpper(strings.TrimSpace(schema.TypeLength.ReplaceAllString(declared, "")))
	if declared == schema.TypeNumeric || declared == "DECIMAL" {
		return true
	}

	for _, part := range []string{"INT", "REAL", "FLOAT", "DOUBLE"} {
		if strings.Contains(declared, part) {
			return true
		}
	}
	return false
}

// lossyNumbers counts texts in a column that lose digits when converted to numbers.
type lossyNumbers struct {
	n     int
	first string
}

func (a *lossyNumbers) add(cell string) {
	if keepsDigits(cell) {
		return
	}
	if a.n++; a.n == 1 {
		a.first = cell
	}
}

// keepsDigits reports whether a text survives the conversion to a number. 007, +49 and numbers
// with too many digits do not.
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

// decimalComma returns a hint for a cell like 12,30, or "".
func decimalComma(cell string) string {
	if tabular.ReadsAsNumber(strings.Replace(strings.ReplaceAll(cell, ".", ""), ",", ".", 1)) {
		return "; numbers have a decimal point, or the column has to be TEXT"
	}
	return ""
}

// quoteCell returns a cell quoted and shortened for a message.
func quoteCell(cell string) string {
	return strconv.Quote(text.Truncate(cell, 40))
}
