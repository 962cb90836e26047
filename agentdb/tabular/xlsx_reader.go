package tabular

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// maxSheetColumns is the maximum number of columns of a sheet in spreadsheet programs.
const maxSheetColumns = 16_384

// xlsxReader reads the rows of one sheet. It skips rows without a value.
type xlsxReader struct {
	*workbook
	part    io.ReadCloser
	xml     *xml.Decoder
	columns int   // number of headings; 0 reads rows of any width
	row     []any // nil, bool, string or json.Number
	number  int   // row number in the sheet, from 1
	fault   string
	done    bool
}

func (w *workbook) rows(columns int) (*xlsxReader, error) {
	part, err := w.part(w.sheet)
	if err != nil {
		return nil, err
	}
	return &xlsxReader{workbook: w, part: part, xml: xml.NewDecoder(part), columns: columns}, nil
}

func (r *xlsxReader) Line() int                    { return r.number }
func (r *xlsxReader) kind(i int) Kind              { return scalarKind(r.cell(i)) }
func (r *xlsxReader) Value(i int, to Affinity) any { return scalarValue(r.cell(i), to) }
func (r *xlsxReader) columnCount() int             { return r.columns }
func (r *xlsxReader) Mismatch() string             { return r.fault }

func (r *xlsxReader) cell(i int) any {
	if i < len(r.row) {
		return r.row[i]
	}
	return nil
}

// Next reads the next row with a value.
func (r *xlsxReader) Next() error {
	for {
		token, err := r.token()
		if err != nil {
			return err
		}

		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "row" {
			continue
		}

		r.number++
		// Rows may be omitted. A row number is used only if it increases.
		if n, err := strconv.Atoi(attribute(start, "r")); err == nil && n > r.number {
			r.number = n
		}

		r.row, r.fault = r.row[:0], ""
		if err := r.cells(); err != nil {
			return err
		}

		// Programs write styled rows without values, which are not rows of the table.
		for _, v := range r.row {
			if v != nil {
				return nil
			}
		}

		if r.fault != "" {
			return nil
		}
	}
}

// token returns the next token of the sheet's data. It returns io.EOF at the end of the data, and
// an error if the file ends earlier.
func (r *xlsxReader) token() (xml.Token, error) {
	if r.done {
		return nil, io.EOF
	}

	token, err := r.xml.RawToken()
	if errors.Is(err, io.EOF) {
		return nil, &SyntaxError{r.number, 0, fmt.Sprintf("the sheet %s is cut off here", r.name)}
	}
	if err != nil {
		return nil, &SyntaxError{r.number, 0, fmt.Sprintf("the sheet %s is damaged: %v", r.name, err)}
	}

	if end, ok := token.(xml.EndElement); ok && end.Name.Local == "sheetData" {
		r.done = true
		return nil, errors.Join(io.EOF, r.part.Close())
	}

	return token, nil
}

// cells reads the cells of a row.
func (r *xlsxReader) cells() error {
	at := -1
	for {
		token, err := r.token()
		if err != nil {
			return r.cut(err)
		}

		switch t := token.(type) {
		case xml.EndElement:
			if t.Name.Local == "row" {
				return nil
			}
		case xml.StartElement:
			if t.Name.Local != "c" {
				continue
			}

			at++ // some programs omit the position of a cell that follows its neighbour
			if ref := attribute(t, "r"); ref != "" {
				at = columnOf(ref)
			}

			v, err := r.read(t)
			if err != nil {
				return err
			}

			r.put(at, v)
		}
	}
}

// cut converts io.EOF inside a row to a syntax error.
func (r *xlsxReader) cut(err error) error {
	if errors.Is(err, io.EOF) {
		return &SyntaxError{r.number, 0, fmt.Sprintf("the sheet %s is damaged: a row does not end", r.name)}
	}
	return err
}

// put stores a value in its column. A value to the right of the last heading is a fault.
func (r *xlsxReader) put(at int, v any) {
	// Report only the first error of a row.
	if v == nil || r.fault != "" {
		return
	}

	if at < 0 || at >= maxSheetColumns {
		r.fault = "a cell says that it is in a column that no sheet has"
		return
	}

	if r.columns > 0 && at >= r.columns {
		r.fault = fmt.Sprintf("there is a value in column %s, to the right of the last heading", columnName(at))
		return
	}

	for len(r.row) <= at {
		r.row = append(r.row, nil)
	}

	r.row[at] = v
}

// read reads one cell. The cell of a formula contains the computed value.
func (r *xlsxReader) read(c xml.StartElement) (any, error) {
	var text strings.Builder
	inText, phonetic, valued, formula := false, false, false, false
	for {
		token, err := r.token()
		if err != nil {
			return nil, r.cut(err)
		}

		switch t := token.(type) {
		case xml.StartElement:
			switch t.Name.Local {
			case "v", "t":
				inText = !phonetic
				valued = valued || inText
			// Phonetic hints in Japanese are not part of the text.
			case "rPh":
				phonetic = true
			case "f":
				formula = true
			}
		case xml.CharData:
			if inText {
				text.Write(t)
			}
		case xml.EndElement:
			switch t.Name.Local {
			case "v", "t":
				inText = false
			case "rPh":
				phonetic = false
			case "c":
				// Programs that generate files may leave the computing to the reader.
				if formula && !valued {
					r.fault = fmt.Sprintf("the cell %s holds a formula without its result; open the file in a spreadsheet program, save it and import it again", attribute(c, "r"))
					return nil, nil
				}

				if !valued {
					return nil, nil
				}
				return r.decode(c, text.String()), nil
			}
		}
	}
}

// decode returns the value of a cell by its type.
func (r *xlsxReader) decode(c xml.StartElement, text string) any {
	switch attribute(c, "t") {
	case "s":
		if n, err := strconv.Atoi(text); err == nil && n >= 0 && n < len(r.shared) {
			return nonEmpty(r.shared[n])
		}
		r.fault = fmt.Sprintf("the cell %s names a text that the file does not hold", attribute(c, "r"))
		return nil
	case "b":
		return text == "1" || text == "true"
	case "str", "inlineStr", "e", "d":
		return nonEmpty(text)
	}

	number, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
		return nonEmpty(text)
	}

	// Dates are numbers with a date style.
	if style, err := strconv.Atoi(attribute(c, "s")); err == nil && style > 0 && style < len(r.dates) {
		if date := r.dates[style].text(number, r.date1904); date != "" {
			return date
		}
	}

	if strings.Trim(text, "0123456789.eE+-") != "" || strings.HasPrefix(text, "+") {
		return nonEmpty(text) // not a valid JSON number
	}

	return json.Number(text)
}

// nonEmpty returns nil for an empty text, because spreadsheets show no difference.
func nonEmpty(text string) any {
	if text == "" {
		return nil
	}
	return strings.ReplaceAll(unescapeXLSX(text), "\x00", "")
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name && a.Name.Space == "" {
			return a.Value
		}
	}
	return ""
}

// columnOf returns the column of a cell's name, from 0: AB12 is in column 27. It returns -1 if the
// name is not valid.
func columnOf(ref string) int {
	n := 0
	for i := 0; i < len(ref); i++ {
		// Clear this bit to convert a letter to upper case.
		c := ref[i] &^ 0x20
		if c < 'A' || c > 'Z' {
			break
		}
		if n = n*26 + int(c-'A') + 1; n > maxSheetColumns {
			return -1
		}
	}

	return n - 1
}

// columnName returns the name of a column. It is the inverse of columnOf.
func columnName(at int) string {
	name := ""
	for at++; at > 0; at = (at - 1) / 26 {
		name = string(rune('A'+(at-1)%26)) + name
	}
	return name
}
