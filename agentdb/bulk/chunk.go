package bulk

import (
	"slices"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/agentdb/tabular"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

const (
	chunkRows  = 1000    // maximum rows per changelog entry
	chunkBytes = 1 << 20 // soft limit for the size of the values
	maxValues  = 32766   // SQLite's limit for parameters
)

// Chunk is up to a thousand rows with the same columns. It has one entry in the changelog.
type Chunk struct {
	columns []string
	at      string // time of writing
	Rows    []chunkRow
}

type chunkRow struct {
	line   int // line in the file or number of the row, for messages
	values []any
	ID     int64 // row id, set after the row is written
}

// index returns the position of a column, or -1 if the chunk does not have it.
func (c *Chunk) index(column string) int {
	return slices.IndexFunc(c.columns, func(name string) bool { return strings.EqualFold(name, column) })
}

// Chunker collects rows into chunks and passes each full chunk to Emit.
type Chunker struct {
	Columns []string
	At      string // time of writing
	Emit    func(*Chunk) error

	current *Chunk
	bytes   int // size of the current chunk's values
}

// maxRow is the maximum size of a row in bytes. Queries can read rows of up to sqlite.MaxLength,
// including the host's columns and a few bytes per value.
const maxRow = sqlite.MaxLength - 64<<10

// Add adds a row. values has a value or tabular.Absent for each column. A row with other columns
// than the previous one starts a new chunk.
func (b *Chunker) Add(line int, values []any) error {
	row := chunkRow{line: line}
	var columns []string
	length, largest := 0, 0
	for i, v := range values {
		if _, absent := v.(tabular.Absent); absent {
			continue
		}
		columns, row.values = append(columns, b.Columns[i]), append(row.values, v)
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
			line, text.Size(int64(length)), text.Size(int64(size(values[largest]))), b.Columns[largest], text.Size(maxRow))
	}

	if c := b.current; c == nil || len(c.Rows) == chunkRows || (len(c.Rows)+1)*len(columns) > maxValues || b.bytes > chunkBytes || !slices.Equal(c.columns, columns) {
		if err := b.Flush(); err != nil {
			return err
		}
		b.current, b.bytes = &Chunk{columns: columns, at: b.At}, 0
	}
	b.current.Rows = append(b.current.Rows, row)
	b.bytes += length
	return nil
}

// size returns the length of a text or BLOB in bytes. Other values count as zero.
func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	}
	return 0
}

// Flush passes the last chunk to Emit.
func (b *Chunker) Flush() error {
	if b.current == nil {
		return nil
	}
	c := b.current
	b.current = nil
	return b.Emit(c)
}
