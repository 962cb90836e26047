package tabular

import (
	"encoding/csv"
	"fmt"
	"strings"
)

// csvWriter writes CSV and TSV. It does not escape formulas, because an escaped text would be
// imported as a different text.
type csvWriter struct {
	w        *csv.Writer
	cells    []string
	formulas int // number of texts that a spreadsheet would compute
}

func (e *csvWriter) Row(values []any) error {
	for i, v := range values {
		e.cells[i] = CellText(v)
		if text, ok := v.(string); ok && looksLikeFormula(text) {
			e.formulas++
		}
	}
	return e.w.Write(e.cells)
}

func (e *csvWriter) Close() error {
	e.w.Flush()
	return e.w.Error()
}

func (e *csvWriter) Warnings() []string {
	if e.formulas == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d texts begin like a formula (=, +, - or @) and were written as they are; a spreadsheet program would compute them: export with format xlsx to open the file in one", e.formulas)}
}

// looksLikeFormula reports whether a spreadsheet that opens a CSV file would compute a text.
func looksLikeFormula(text string) bool {
	if text == "" || !strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return false
	}
	return !ReadsAsNumber(text) && strings.Trim(text[1:], "0123456789 ()/.,-") != ""
}
