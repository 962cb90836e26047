package agentdb

import (
	"bytes"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"rouse/agentdb/sqlite"
	"rouse/agentdb/tabular"
	"rouse/internal/text"
)

const (
	chunkRows     = 1000    // rows of one statement and of one changelog row
	chunkBytes    = 1 << 20 // of their texts, unless a single row has more
	maxParameters = 32766   // of one statement
)

// chunk is up to a thousand rows that are written by one statement. They have the same
// columns.
type chunk struct {
	columns []string
	rows    int
	args    []any  // the instant of writing, then the rows one after the other
	lines   []int  // where each row came from, for messages
	pattern string // which of the chunker's columns these are
	image   string
}

func (c *chunk) row(i int) []any { return c.args[1+i*len(c.columns):][:len(c.columns)] }

// index finds a column, -1 when the rows do not have it.
func (c *chunk) index(column string) int {
	for i, name := range c.columns {
		if strings.EqualFold(name, column) {
			return i
		}
	}
	return -1
}

// single is one row of a chunk by itself.
func (c *chunk) single(i int) *chunk {
	args := append([]any{c.args[0]}, c.row(i)...)
	return &chunk{columns: c.columns, rows: 1, args: args, lines: c.lines[i : i+1], pattern: c.pattern}
}

// values picks some columns of every row; all of them must be there.
func (c *chunk) values(columns []string) []any {
	at := make([]int, len(columns))
	for i, name := range columns {
		at[i] = c.index(name)
	}

	out := make([]any, 0, c.rows*len(columns))
	for r := range c.rows {
		for _, i := range at {
			out = append(out, c.row(r)[i])
		}
	}
	return out
}

// chunker gathers rows into chunks and hands each full one on.
type chunker struct {
	columns []string
	size    int    // rows of a chunk
	at      string // the instant of writing
	emit    func(*chunk) error

	current *chunk
	bytes   int    // of its texts
	scratch []byte // the pattern of a row
	written []byte // the image of the chunk before, whose room is used again
}

// add takes a row with a value, or tabular.Absent, for each of the columns. A row with other
// columns than the one before begins a new chunk.
func (b *chunker) add(line int, values []any) error {
	texts, err := b.examine(line, values)
	if err != nil {
		return err
	}

	if b.current == nil || b.current.pattern != string(b.scratch) || b.full() {
		if err := b.flush(); err != nil {
			return err
		}
		b.begin()
	}

	for i, v := range values {
		if b.scratch[i] == '1' {
			b.current.args = append(b.current.args, v)
		}
	}

	b.bytes += texts
	b.current.rows++
	b.current.lines = append(b.current.lines, line)
	return nil
}

// maxRow is how long a row may be, in bytes: queries read rows of sqlite.MaxLength, in which there is
// also what the host keeps of it, and each column needs a little more than its value.
const maxRow = sqlite.MaxLength - 64<<10

// examine finds which columns a row has, and how many bytes its texts are. A row without any value is refused, and
// one that could be written and then not be read.
func (b *chunker) examine(line int, values []any) (texts int, err error) {
	// The pattern says which columns the row has. All rows of one INSERT need the same.
	b.scratch = b.scratch[:0]
	all, largest, at, some := 0, 0, 0, false
	for i, v := range values {
		has, n := byte('1'), 0
		switch v := v.(type) {
		case tabular.Absent:
			has = '0'
		case string:
			n = len(v)
			texts += n
		case []byte:
			n = len(v)
		}

		some = some || has == '1'
		b.scratch = append(b.scratch, has)
		if all += n; n > largest {
			largest, at = n, i
		}
	}

	if !some {
		return 0, invalid("", "the row or line %d has no value at all; nothing was written", line)
	}
	if all > maxRow {
		return 0, invalid("", "the row or line %d is too long: it has %s, of which %s are in column %s, and a row of more than %s could not be read back; nothing was written. Keep such a value in a file, and its path in the table",
			line, text.Size(int64(all)), text.Size(int64(largest)), b.columns[at], text.Size(maxRow))
	}

	return texts, nil
}

// size is how long a value is in a row, but for numbers, which are never long.
func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	}
	return 0
}

func (b *chunker) full() bool {
	return b.current.rows == b.size || b.bytes > chunkBytes || len(b.current.args)+len(b.current.columns) > maxParameters
}

func (b *chunker) begin() {
	b.current, b.bytes = &chunk{pattern: string(b.scratch)}, 0
	for i, name := range b.columns {
		if b.current.pattern[i] == '1' {
			b.current.columns = append(b.current.columns, name)
		}
	}

	// Room for the instant and all rows at once: growing would copy large chunks several times.
	b.current.args = make([]any, 1, 1+min(b.size*len(b.current.columns), maxParameters))
	b.current.args[0] = b.at
	b.current.lines = make([]int, 0, b.size)
}

// flush hands the last chunk on.
func (b *chunker) flush() error {
	c := b.current
	b.current = nil
	if c == nil {
		return nil
	}
	b.written = appendImage(b.written[:0], c.columns, c.args[1:])
	c.image = string(b.written)
	return b.emit(c)
}

// image is what the changelog keeps of rows: {"columns":[…],"rows":[[…],…]}. It is written
// without a library, because an import of a million rows passes here.
func image(columns []string, values []any) string {
	return string(appendImage(nil, columns, values))
}

func appendImage(out []byte, columns []string, values []any) []byte {
	out = slices.Grow(out, 32+12*len(values))
	out = append(out, `{"columns":[`...)
	for i, name := range columns {
		if i > 0 {
			out = append(out, ',')
		}
		out = tabular.AppendText(out, name)
	}

	out = append(out, `],"rows":[`...)
	for i, v := range values {
		switch {
		case i%len(columns) != 0:
			out = append(out, ',')
		case i > 0:
			out = append(out, "],["...)
		default:
			out = append(out, '[')
		}
		out = appendValue(out, v)
	}

	if len(values) > 0 {
		out = append(out, ']')
	}

	return append(out, "]}"...)
}

// appendRow writes a row as image does.
func appendRow(out []byte, values []any) []byte {
	for i, v := range values {
		out = appendValue(append(out, "[,"[min(i, 1)]), v)
	}
	return append(out, ']')
}

// appendValue writes a value so that it can be read back as it was: whole numbers are
// INTEGER, numbers with a point or an exponent REAL, and what JSON has no form for is an
// object: {"blob":"…"} and {"text":"…"} in base64, {"real":"+Inf"}.
func appendValue(out []byte, v any) []byte {
	switch v := v.(type) {
	case int64:
		return strconv.AppendInt(out, v, 10)
	case float64:
		return appendFloat(out, v)
	case string:
		if !utf8.ValidString(v) {
			return appendObject(out, "text", base64.StdEncoding.EncodeToString([]byte(v)))
		}
		return tabular.AppendText(out, v)
	case []byte:
		return appendObject(out, "blob", base64.StdEncoding.EncodeToString(v))
	}
	return append(out, "null"...)
}

func appendFloat(out []byte, f float64) []byte {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return appendObject(out, "real", strconv.FormatFloat(f, 'g', -1, 64))
	}

	from := len(out)
	out = strconv.AppendFloat(out, f, 'g', -1, 64)
	if !bytes.ContainsAny(out[from:], ".e") {
		out = append(out, ".0"...)
	}
	return out
}

func appendObject(out []byte, kind, text string) []byte {
	out = append(out, '{')
	out = tabular.AppendText(out, kind)
	out = append(out, ':')
	out = tabular.AppendText(out, text)
	return append(out, '}')
}
