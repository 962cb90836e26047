package tabular

import (
	"fmt"
	"io"
	"strings"
)

// csvReader reads RFC 4180 as spreadsheets write it: any line ending, quoted cells over
// several lines, a quote inside an unquoted cell taken as it is. Cells are substrings of
// the file, exactly as they stand in it (encoding/csv would turn \r\n in a cell into \n).
type csvReader struct {
	data  string
	pos   int
	line  int // of pos, from 1
	comma byte
	end   byte // \n, or \r in files of old Macs
	cells []string
	start int // line on which the current record begins
}

func newCSV(data string, comma byte) *csvReader {
	return &csvReader{data: data, line: 1, comma: comma, end: lineEnd(data, comma)}
}

// lineEnd returns \r if the first lines of data end with a carriage return alone. Such files can have a \n all the same: in
// a quoted cell, or at the very end.
func lineEnd(data string, comma byte) byte {
	start := data[:min(len(data), sniffBytes)]
	returns, feeds, quoted := 0, 0, false
	for i := range len(start) {
		switch c := start[i]; {
		case c == '"' && quoted:
			quoted = false
		// A quote after a quoted cell's end is the second of a pair.
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
	sniffRows  = 50      // records by which the separator is guessed
	sniffBytes = 1 << 16 // of the file, at most
)

// guessSeparator guesses what separates the cells of a CSV file: spreadsheets of half the world
// write semicolons, and decimal commas beside them. It is what cuts the most of the first
// records into as many cells as the very first; a comma comes last, because it is the one
// that stands inside cells.
func guessSeparator(data string) byte {
	start := data[:min(len(data), sniffBytes)]
	best, most := byte(','), -1
	for _, c := range []byte{';', '\t', '|', ','} {
		// Only a better one replaces the best, so that the order above decides between equals.
		if n := countSameWidth(start, c); n > most {
			best, most = c, n
		}
	}

	return best
}

// countSameWidth counts the records with as many cells as the first one, -1 if that has only one.
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

// declaredSeparator reads the line sep=; by which spreadsheets are told the separator.
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

// Next reads a record into cells, which stay valid until the call after. Blank lines are
// no records. It returns io.EOF after the last record, *SyntaxError for broken quoting.
func (r *csvReader) Next() error {
	r.skipBlank()
	if r.pos >= len(r.data) {
		return io.EOF
	}

	// The slice is reused: a file of a million rows would otherwise make a million of them.
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

// cell reads up to and including the separator; more says that the record goes on.
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
			// Most quoted cells hold no quote and stay a part of the file without a copy.
			if doubled {
				cell = strings.ReplaceAll(cell, `""`, `"`)
			}

			more, err = r.afterQuote(i + 1)
			return cell, more, err
		}
	}

	return "", false, &opened
}

// afterQuote goes past what separates a quoted cell from the next.
func (r *csvReader) afterQuote(i int) (more bool, err error) {
	rest := r.data[i:]
	switch {
	// A lone carriage return at the very end belongs to a line ending that was cut.
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

// csvRecords are the rows of a CSV file below its headings.
type csvRecords struct {
	*csvReader
	columns int
	needed  int // of the columns, up to the last with a heading
}

func (r csvRecords) Line() int                    { return r.start }
func (r csvRecords) kind(i int) Kind              { return kindOfCell(r.cells[i]) }
func (r csvRecords) columnCount() int             { return r.columns }
func (r csvRecords) Value(i int, to Affinity) any { return cellValue(r.cells[i], to) }

// Mismatch accepts what loses nothing: separators at the end of a line, and missing cells of
// columns that have no heading. Such a row is cut, or filled, to the width of the headings.
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
