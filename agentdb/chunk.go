package agentdb

import (
	"slices"
	"strings"

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
