package agentdb

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// encoder writes the rows of an export. Values are nil, int64, float64 or string.
type encoder interface {
	row(values []any) error
	close() error
	warnings() []string
}

func newEncoder(format string, to io.Writer, columns []string) (encoder, error) {
	switch format {
	case formatXLSX:
		return newXLSXEncoder(to, columns)
	case formatJSON, formatJSONL:
		return newJSONEncoder(to, columns, format == formatJSON)
	}

	w := csv.NewWriter(to)
	if format == formatTSV {
		w.Comma = '\t'
	}
	return &csvEncoder{w: w, cells: make([]string, len(columns))}, w.Write(columns)
}

type csvEncoder struct {
	w        *csv.Writer
	cells    []string
	formulas int // texts that a spreadsheet would compute
}

func (e *csvEncoder) row(values []any) error {
	for i, v := range values {
		e.cells[i] = cellText(v)
		if text, ok := v.(string); ok && looksLikeFormula(text) {
			e.formulas++
		}
	}
	return e.w.Write(e.cells)
}

func (e *csvEncoder) close() error {
	e.w.Flush()
	return e.w.Error()
}

func (e *csvEncoder) warnings() []string {
	if e.formulas == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d texts begin like a formula (=, +, - or @) and were written as they are; a spreadsheet program would compute them: export with format xlsx to open the file in one", e.formulas)}
}

// looksLikeFormula says whether a spreadsheet that opens a CSV file would compute a text.
func looksLikeFormula(text string) bool {
	if text == "" || !strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return false
	}
	return !readsAsNumber(text) && strings.Trim(text[1:], "0123456789 ()/.,-") != ""
}

// cellText is a value in a text file.
func cellText(v any) string {
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

// jsonEncoder writes objects with their keys in the order of the columns.
type jsonEncoder struct {
	to    io.Writer
	keys  []string // "name": with its quotes and colon
	array bool
	n     int
	out   []byte
}

func newJSONEncoder(to io.Writer, columns []string, array bool) (*jsonEncoder, error) {
	e := &jsonEncoder{to: to, array: array}
	for _, name := range columns {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		e.keys = append(e.keys, string(key)+":")
	}

	return e, nil
}

func (e *jsonEncoder) row(values []any) error {
	e.out = e.out[:0]
	if e.array {
		e.out = append(e.out, [2]string{"[\n", ",\n"}[min(e.n, 1)]...)
	}

	e.n++
	for i, v := range values {
		e.out = append(e.out, "{,"[min(i, 1)])
		e.out = append(e.out, e.keys[i]...)
		switch v := v.(type) {
		case nil:
			e.out = append(e.out, "null"...)
		case int64:
			e.out = strconv.AppendInt(e.out, v, 10)
		case float64:
			e.out = append(e.out, floatText(v)...) // never infinite: see readable
		case string:
			e.out = appendText(e.out, v)
		}
	}

	e.out = append(e.out, '}')
	if !e.array {
		e.out = append(e.out, '\n')
	}

	_, err := e.to.Write(e.out)
	return err
}

func (e *jsonEncoder) close() error {
	end := ""
	if e.array {
		end = "\n]\n"
		if e.n == 0 {
			end = "[]\n"
		}
	}

	_, err := io.WriteString(e.to, end)
	return err
}

func (e *jsonEncoder) warnings() []string { return nil }
