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

// maxSheetColumns is how many columns a sheet has in the spreadsheet programs.
const maxSheetColumns = 16_384

// xlsxReader reads the rows of one sheet. Rows without a value are no records.
type xlsxReader struct {
	*workbook
	part    io.ReadCloser
	xml     *xml.Decoder
	columns int   // of the headings; 0 reads rows of any width
	row     []any // nil, bool, string or json.Number
	number  int   // of the row in the sheet, from 1
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

// Next reads up to the end of the next row that holds something.
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
		// Rows may be left out, and their numbers are only trusted as far as they go up.
		if n, err := strconv.Atoi(attribute(start, "r")); err == nil && n > r.number {
			r.number = n
		}

		r.row, r.fault = r.row[:0], ""
		if err := r.cells(); err != nil {
			return err
		}

		// Programs write rows of styles without a value, which are not rows of the table.
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

// token reads on inside the sheet's data; io.EOF is the end of that, and the end of the
// file before it a fault.
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

// cells reads the cells of a row, up to its end.
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

			at++ // some programs leave out where a cell is: beside the one before
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

// cut makes an end inside a row a fault.
func (r *xlsxReader) cut(err error) error {
	if errors.Is(err, io.EOF) {
		return &SyntaxError{r.number, 0, fmt.Sprintf("the sheet %s is damaged: a row does not end", r.name)}
	}
	return err
}

// put keeps a value at its column, if that is one of the headings'.
func (r *xlsxReader) put(at int, v any) {
	// The first fault of a row is the one that is reported.
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

// read reads one cell, up to its end: the result of a formula stands in it as a value.
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
			// Phonetic hints for Japanese are not part of the text.
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
				// Programs that write files without opening them leave the computing to the
				// reader.
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

// decode gives a cell's value by its type.
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

	// Dates are numbers that a style shows as a date.
	if style, err := strconv.Atoi(attribute(c, "s")); err == nil && style > 0 && style < len(r.dates) {
		if date := r.dates[style].text(number, r.date1904); date != "" {
			return date
		}
	}

	if strings.Trim(text, "0123456789.eE+-") != "" || strings.HasPrefix(text, "+") {
		return nonEmpty(text) // no number as JSON has it
	}

	return json.Number(text)
}

// nonEmpty takes an empty text for an empty cell: spreadsheets show them alike.
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

// columnOf is the column of a cell's name, from 0: AB12 is 27. It is -1 when the name is
// none.
func columnOf(ref string) int {
	n := 0
	for i := 0; i < len(ref); i++ {
		// Clearing this bit makes a letter upper case.
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

// columnName is the opposite of columnOf.
func columnName(at int) string {
	name := ""
	for at++; at > 0; at = (at - 1) / 26 {
		name = string(rune('A'+(at-1)%26)) + name
	}
	return name
}
