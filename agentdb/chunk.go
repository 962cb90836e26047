package agentdb

import (
	"bytes"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"rouse/agentdb/dberr"
	"rouse/agentdb/tabular"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

const (
	chunkRows  = 1000    // rows of one entry of the changelog
	chunkBytes = 1 << 20 // of their values, unless a single row has more
	maxValues  = 32766   // of a chunk: SQLite has no more parameters
)

// chunk is up to a thousand rows with the same columns, which have one entry in the changelog.
type chunk struct {
	columns []string
	at      string // the time of writing
	rows    []chunkRow
}

type chunkRow struct {
	line   int // in the file, or the number of the row, for messages
	values []any
	id     int64 // the row id that SQLite gave, once the row is written
}

// index returns the position of a column, or -1 if the rows do not have it.
func (c *chunk) index(column string) int {
	return slices.IndexFunc(c.columns, func(name string) bool { return strings.EqualFold(name, column) })
}

// chunker gathers rows into chunks and hands each full one on.
type chunker struct {
	columns []string
	at      string // the time of writing
	emit    func(*chunk) error

	current *chunk
	bytes   int // of its values
}

// maxRow is the longest row in bytes. Queries read rows of sqlite.MaxLength, which include the
// host's columns and a few bytes for each value.
const maxRow = sqlite.MaxLength - 64<<10

// add takes a row with a value, or tabular.Absent, for each of the columns. A row with other
// columns than the one before begins a new chunk.
func (b *chunker) add(line int, values []any) error {
	row := chunkRow{line: line}
	var columns []string
	length, largest := 0, 0
	for i, v := range values {
		if _, absent := v.(tabular.Absent); absent {
			continue
		}
		columns, row.values = append(columns, b.columns[i]), append(row.values, v)
		length += size(v)
		if size(v) > size(values[largest]) {
			largest = i
		}
	}

	if len(columns) == 0 {
		return dberr.Invalid("", "the row or line %d has no value at all; nothing was written", line)
	}
	if length > maxRow {
		return dberr.Invalid("", "the row or line %d is too long: it has %s, of which %s are in column %s, and a row of more than %s could not be read back; nothing was written. Keep such a value in a file, and its path in the table",
			line, text.Size(int64(length)), text.Size(int64(size(values[largest]))), b.columns[largest], text.Size(maxRow))
	}

	if c := b.current; c == nil || len(c.rows) == chunkRows || (len(c.rows)+1)*len(columns) > maxValues || b.bytes > chunkBytes || !slices.Equal(c.columns, columns) {
		if err := b.flush(); err != nil {
			return err
		}
		b.current, b.bytes = &chunk{columns: columns, at: b.at}, 0
	}
	b.current.rows = append(b.current.rows, row)
	b.bytes += length
	return nil
}

// size returns the length of a text or BLOB in bytes. Other values are never long.
func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	}
	return 0
}

// flush hands the last chunk on.
func (b *chunker) flush() error {
	if b.current == nil {
		return nil
	}
	c := b.current
	b.current = nil
	return b.emit(c)
}

// appendNames writes names as a JSON list.
func appendNames(out []byte, names []string) []byte {
	out = append(out, '[')
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = tabular.AppendText(out, name)
	}
	return append(out, ']')
}

// appendValue writes a value so that it can be read back as it was; see Change.
func appendValues(out []byte, values []any) []byte {
	out = append(out, '[')
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendValue(out, v)
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
