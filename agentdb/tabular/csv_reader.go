package tabular

import (
	"fmt"
	"io"
	"strings"
)

// csvReader reads CSV (RFC 4180) as spreadsheets write it. It accepts any line ending, quoted cells
// over several lines, and quotes inside unquoted cells. Cells are exact substrings of the file,
// while encoding/csv would convert \r\n in a cell to \n.
type csvReader struct {
	data  string
	pos   int
	line  int // line number of pos, from 1
	comma byte
	end   byte // \n, or \r in files of old Macs
	cells []string
	start int // first line of the current record
}

func newCSV(data string, comma byte) *csvReader {
	return &csvReader{data: data, line: 1, comma: comma, end: lineEnd(data, comma)}
}

// lineEnd returns \r if the first lines of data end with a lone carriage return. Such files may
// still contain a \n, in a quoted cell or at the very end.
func lineEnd(data string, comma byte) byte {
	start := data[:min(len(data), sniffBytes)]
	returns, feeds, quoted := 0, 0, false
	for i := range len(start) {
		switch c := start[i]; {
		case c == '"' && quoted:
			quoted = false
		// A quote after the end of a quoted cell is the second quote of a pair.
		case c == '"':
			quoted = i == 0 || strings.IndexByte("\r\n\"", start[i-1]) >= 0 || start[i-1] == comma
		case quoted:
		case c == '\n':
			feeds++
		case c == '\r' && !strings.HasPrefix(data[i:], "\r\n"):
			returns++
		}
	}

	if returns > 0 && returns >= feeds {
		return '\r'
	}
	return '\n'
}

const (
	sniffRows  = 50      // number of records for guessing the separator
	sniffBytes = 1 << 16 // maximum number of bytes for guessing
)

// guessSeparator guesses the separator of a CSV file. Spreadsheets in many countries write
// semicolons, together with decimal commas. The best separator splits the most of the first records
// into as many cells as the very first record. The comma is the last choice, because it also occurs
// inside cells.
func guessSeparator(data string) byte {
	start := data[:min(len(data), sniffBytes)]
	best, most := byte(','), -1
	for _, c := range []byte{';', '\t', '|', ','} {
		// The comparison is strict, so the order above decides between equal counts.
		if n := countSameWidth(start, c); n > most {
			best, most = c, n
		}
	}

	return best
}

// countSameWidth returns the number of records with as many cells as the first record, or -1 if the
// first record has only one cell.
func countSameWidth(data string, comma byte) int {
	r := newCSV(data, comma)
	if r.Next() != nil || len(r.cells) < 2 {
		return -1
	}

	width, n := len(r.cells), 0
	for range sniffRows {
		if r.Next() != nil {
			break
		}
		if len(r.cells) == width {
			n++
		}
	}

	return n
}

// declaredSeparator parses a first line such as sep=; that declares the separator.
func declaredSeparator(data string) (separator byte, rest string) {
	at := strings.IndexAny(data, "\r\n")
	if at != 5 || !strings.EqualFold(data[:4], "sep=") {
		return 0, data
	}

	end := 1
	if strings.HasPrefix(data[at:], "\r\n") {
		end = 2
	}
	return data[4], data[at+end:]
}

// Next reads a record into cells, which stay valid until the next call. It skips blank lines. It
// returns io.EOF after the last record, and a *SyntaxError for invalid quoting.
func (r *csvReader) Next() error {
	r.skipBlank()
	if r.pos >= len(r.data) {
		return io.EOF
	}

	// Reuse the slice. Otherwise a file with a million rows would allocate a million slices.
	r.cells = r.cells[:0]
	r.start = r.line
	for {
		cell, more, err := r.cell()
		if err != nil {
			return err
		}

		r.cells = append(r.cells, cell)
		if !more {
			return nil
		}
	}
}

func (r *csvReader) skipBlank() {
	for r.pos < len(r.data) {
		switch {
		case strings.HasPrefix(r.data[r.pos:], "\r\n"):
			r.pos += 2
		case r.data[r.pos] == r.end:
			r.pos++
		default:
			return
		}
		r.line++
	}
}

// cell reads a cell and the separator after it. more reports whether the record continues.
func (r *csvReader) cell() (cell string, more bool, err error) {
	if r.pos < len(r.data) && r.data[r.pos] == '"' {
		return r.quoted()
	}

	from := r.pos
	for i := from; i < len(r.data); i++ {
		switch r.data[i] {
		case r.comma:
			r.pos = i + 1
			return r.data[from:i], true, nil
		case r.end:
			r.pos = r.behind(i)
			r.line++
			return strings.TrimSuffix(r.data[from:i], "\r"), false, nil
		}
	}

	r.pos = len(r.data)
	return strings.TrimSuffix(r.data[from:], "\r"), false, nil
}

func (r *csvReader) quoted() (cell string, more bool, err error) {
	opened := SyntaxError{r.line, r.column(r.pos), "a quote is opened and never closed"}
	from := r.pos + 1
	doubled := false
	for i := from; i < len(r.data); i++ {
		switch r.data[i] {
		case r.end:
			r.line++
		case '"':
			if i+1 < len(r.data) && r.data[i+1] == '"' {
				doubled = true
				i++
				continue
			}

			cell = r.data[from:i]
			// Most quoted cells contain no quote and need no copy.
			if doubled {
				cell = strings.ReplaceAll(cell, `""`, `"`)
			}

			more, err = r.afterQuote(i + 1)
			return cell, more, err
		}
	}

	return "", false, &opened
}

// afterQuote skips the separator after a quoted cell.
func (r *csvReader) afterQuote(i int) (more bool, err error) {
	rest := r.data[i:]
	switch {
	// A lone carriage return at the very end is a truncated line ending.
	case rest == "" || rest == "\r":
		r.pos = len(r.data)
	case rest[0] == r.comma:
		r.pos = i + 1
		return true, nil
	case rest[0] == r.end || strings.HasPrefix(rest, "\r\n"):
		r.pos = r.behind(i)
		r.line++
	default:
		return false, &SyntaxError{r.line, r.column(i), fmt.Sprintf("%q follows a closing quote; a quote inside a quoted cell is written twice", rest[:runeLen(rest)])}
	}

	return false, nil
}

// behind returns the position after the line end at i.
func (r *csvReader) behind(i int) int {
	if strings.HasPrefix(r.data[i:], "\r\n") {
		return i + 2
	}
	return i + 1
}

func runeLen(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}

func (r *csvReader) column(at int) int { return columnInLine(r.data, at, r.end) }

// csvRecords holds the rows of a CSV file below its headings.
type csvRecords struct {
	*csvReader
	columns int
	needed  int // number of columns up to the last one with a heading
}

func (r csvRecords) Line() int                    { return r.start }
func (r csvRecords) kind(i int) Kind              { return kindOfCell(r.cells[i]) }
func (r csvRecords) columnCount() int             { return r.columns }
func (r csvRecords) Value(i int, to Affinity) any { return cellValue(r.cells[i], to) }

// Mismatch accepts differences that lose no data: extra separators at the end of a line, and
// missing cells in columns without a heading. It cuts or fills such a row to the number of
// headings.
func (r csvRecords) Mismatch() string {
	found := len(r.cells)
	for len(r.cells) > r.columns && r.cells[len(r.cells)-1] == "" {
		r.cells = r.cells[:len(r.cells)-1]
	}

	if len(r.cells) >= r.needed && len(r.cells) <= r.columns {
		for len(r.cells) < r.columns {
			r.cells = append(r.cells, "")
		}
		return ""
	}
	return fmt.Sprintf("it has %d cells, and the first line has %d", found, r.columns)
}
