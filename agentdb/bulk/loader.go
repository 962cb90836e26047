// Package bulk writes many rows into one table, in chunks that each have one entry in the changelog.
package bulk

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/agentdb/tabular"
	"rouse/internal/storage/sqlite"
)

// ErrConfine says that a write may change or read more than the rows it names, by a trigger,
// a cascade or an expression of the agent's. It has to run again, confined and row by row.
var ErrConfine = errors.New("this write has to be confined")

// plainUpsert is the longest row, in bytes, that an unconfined upsert writes. The length of the row
// that it becomes, together with the columns that the upsert leaves alone, is not bounded there.
const plainUpsert = 32 << 10

// Loader writes chunks into one table, each with its entry in the changelog.
type Loader struct {
	Tx       *sqlite.Tx
	By       changelog.By
	Op       string // of the changelog
	Table    *schema.Table
	Keys     []string // Columns by which rows are updated instead; nil only inserts
	Rejected *Rejects // collects the rows that SQLite refuses; if nil, a refused row is an error

	layout    *changelog.Layout // read with the first chunk, unless the write is confined
	statement *sql.Stmt         // writes a row of the columns
	columns   []string
}

// Write writes one chunk and returns how many rows it changed. It removes refused rows from the
// chunk.
func (l *Loader) Write(ctx context.Context, c *Chunk) (changed int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}

	// The transaction may be shared, so this caller's end must not end it.
	ctx = l.Tx.Context(ctx)
	if err := l.checkPlain(ctx, c); err != nil {
		return 0, err
	}
	before, err := l.images(ctx, c)
	if err != nil {
		return 0, err
	}

	if l.statement == nil || !slices.Equal(l.columns, c.columns) {
		if err := l.Close(); err != nil {
			return 0, err
		}
		if l.statement, err = l.Tx.SQL().PrepareContext(ctx, l.insert(c)); err != nil {
			return 0, err
		}
		l.columns = c.columns
	}

	var written []chunkRow
	for _, row := range c.Rows {
		n, err := l.writeRow(ctx, c.at, &row)
		switch {
		case err == nil:
			changed += n
			written = append(written, row)
		case !dberr.Refused(err):
			return 0, err
		case l.Rejected == nil:
			return 0, &dberr.Error{Kind: dberr.KindInvalid, Retryable: true, Message: fmt.Sprintf("row %d: %s; nothing was written", row.line, dberr.RowText(err))}
		default:
			if err := l.Rejected.Add(row.line, dberr.RowText(err)); err != nil {
				return 0, err
			}
		}
	}
	if c.Rows = written; len(written) == 0 {
		return 0, nil
	}
	return changed, l.logChunk(ctx, c, before)
}

func (l *Loader) writeRow(ctx context.Context, at string, row *chunkRow) (changed int64, err error) {
	args := row.values
	if l.Table.HasHostColumns {
		args = append([]any{at}, args...)
	}

	// A row that is refused was seen by the hook all the same.
	mark := l.Tx.ChangeCount()
	result, err := l.statement.ExecContext(ctx, args...)
	if err != nil {
		l.Tx.DiscardChanges(mark)
		return 0, err
	}
	if row.ID, err = result.LastInsertId(); err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Close ends the prepared statement.
func (l *Loader) Close() error {
	if l.statement == nil {
		return nil
	}
	err := l.statement.Close()
	l.statement = nil
	return err
}

// insert writes the statement for one row. In tables with host columns parameter 1 is the time of
// writing.
func (l *Loader) insert(c *Chunk) string {
	row, columns := sqltext.Placeholders(len(c.columns)), sqltext.QuoteAll(c.columns)
	if l.Table.HasHostColumns {
		row, columns = "?1, ?1, "+row, sqltext.ColumnCreated+", "+sqltext.ColumnUpdated+", "+columns
	}

	query := "INSERT INTO " + sqltext.Quote(l.Table.Name) + " (" + columns + ") VALUES (" + row + ")"
	if l.Keys != nil {
		query += " ON CONFLICT (" + sqltext.QuoteAll(l.Keys) + ") DO " + l.onConflict(c)
	}
	return query
}

// onConflict updates what is not a key, and brings a deleted row back. Rows of keys alone
// have nothing to update (OSA-54).
func (l *Loader) onConflict(c *Chunk) string {
	var set []string
	for _, name := range c.columns {
		if !sqltext.ContainsFold(l.Keys, name) {
			set = append(set, sqltext.Quote(name)+" = excluded."+sqltext.Quote(name))
		}
	}
	if len(set) == 0 {
		return "NOTHING"
	}

	if l.Table.HasHostColumns {
		set = append(set, sqltext.ColumnUpdated+" = excluded."+sqltext.ColumnUpdated, sqltext.ColumnDeleted+" = NULL")
	}

	return "UPDATE SET " + strings.Join(set, ", ")
}

// checkPlain returns errConfine if a chunk cannot be written with one entry in the changelog. A
// confined write is recorded row by row by SQLite's hook instead.
func (l *Loader) checkPlain(ctx context.Context, c *Chunk) (err error) {
	if l.Tx.Confined() {
		return nil
	}
	if l.layout == nil {
		if l.layout, err = changelog.ReadLayout(ctx, l.Tx, l.Table.Name); err != nil {
			return err
		}
	}

	tooLong := func(row chunkRow) bool {
		length := 0
		for _, v := range row.values {
			length += size(v)
		}
		return length > plainUpsert
	}
	// An upsert updates rows, which may cascade to tables that point here. And a chunk can be
	// recorded as a whole only if each of its rows can be found again.
	if !l.layout.Plain || l.Keys != nil && (l.layout.Parent || slices.ContainsFunc(c.Rows, tooLong)) || !l.numbered() && !l.keyed(c) {
		return ErrConfine
	}
	return nil
}

// numbered reports whether the rows of a chunk get row ids that follow each other and are their
// key.
func (l *Loader) numbered() bool {
	return l.Keys == nil && (l.layout.ByRowID || l.Table.RowKey != "")
}

// keyed reports whether every row of a chunk has a value for each column of its key.
func (l *Loader) keyed(c *Chunk) bool {
	keys := l.Keys
	if keys == nil {
		keys = l.layout.Key
	}
	return !slices.ContainsFunc(keys, func(name string) bool {
		at := c.index(name)
		return at < 0 || slices.ContainsFunc(c.Rows, func(row chunkRow) bool { return row.values[at] == nil })
	})
}

// logChunk writes the changelog's entry of a chunk (C-14); see changelog.Change. before has the rows that an
// upsert found.
func (l *Loader) logChunk(ctx context.Context, c *Chunk, before [][]any) error {
	if l.Tx.Confined() {
		return nil
	}

	entry := changelog.Entry{Op: l.Op, Table: l.Table.Name}
	columns, rows := c.columns, make([][]any, len(c.Rows))
	for i, row := range c.Rows {
		rows[i] = row.values
	}

	keys := l.layout.Key
	if l.Keys != nil {
		// Columns that the upsert does not set keep values that the chunk does not have.
		keys, columns = l.Keys, l.layout.ImageColumns()
		var err error
		if rows, err = l.images(ctx, c); err != nil {
			return err
		}

		key := func(row []any) string { return changelog.Image{Columns: columns, Values: row}.Pick(keys).String() }
		stays := map[string]bool{}
		for _, row := range rows {
			stays[key(row)] = true
		}
		// What was there of a refused row does not belong to the chunk.
		entry.Before = rowsImage(columns, slices.DeleteFunc(before, func(row []any) bool { return !stays[key(row)] }))
	}
	entry.After = rowsImage(columns, rows)

	var pk []byte
	if l.Keys == nil && (l.layout.ByRowID || c.index(keys[0]) < 0) {
		// SQLite numbers rows one after the other, so the first and the last number are enough.
		pk = tabular.AppendText([]byte(`{"column":`), keys[0])
	} else {
		pk = sqlvalue.AppendNames([]byte(`{"keys":`), keys)
	}
	pk = l.appendID(append(pk, `,"from":`...), l.ID(c, c.Rows[0]))
	pk = l.appendID(append(pk, `,"to":`...), l.ID(c, c.Rows[len(c.Rows)-1]))
	entry.PK = fmt.Sprintf(`%s,"count":%d}`, pk, len(c.Rows))
	_, err := changelog.Log(l.Tx, l.By, c.at, entry)
	return err
}

func (l *Loader) appendID(out []byte, id any) []byte {
	if list, ok := id.([]any); ok {
		return sqlvalue.AppendList(out, list)
	}
	return sqlvalue.Append(out, id)
}

// rowsImage is how the changelog keeps the rows of a chunk: {"columns":[…],"rows":[[…],…]}. It is
// "" for no rows.
func rowsImage(columns []string, rows [][]any) string {
	if len(rows) == 0 {
		return ""
	}
	out := append(sqlvalue.AppendNames([]byte(`{"columns":`), columns), `,"rows":[`...)
	for i, row := range rows {
		if i > 0 {
			out = append(out, ',')
		}
		out = sqlvalue.AppendList(out, row)
	}
	return string(append(out, "]}"...))
}

// images reads the rows that have the keys of a chunk. It returns nothing for an insert, whose rows
// are new, and for a confined write.
func (l *Loader) images(ctx context.Context, c *Chunk) ([][]any, error) {
	if l.Keys == nil || l.Tx.Confined() {
		return nil, nil
	}

	columns := l.layout.ImageColumns()
	key := "(" + sqltext.Placeholders(len(l.Keys)) + ")"
	query := "SELECT " + changelog.Selection(columns) + " FROM " + sqltext.Quote(l.Table.Name) + " WHERE (" + sqltext.QuoteAll(l.Keys) + ") IN (VALUES " +
		key + strings.Repeat(", "+key, len(c.Rows)-1) + ")"
	var args []any
	for _, row := range c.Rows {
		for _, name := range l.Keys {
			args = append(args, row.values[c.index(name)])
		}
	}

	return sqlite.Collect(ctx, l.Tx.SQL(), func(scan sqlite.Scanner) ([]any, error) {
		row := make([]any, len(columns))
		return row, scan(sqlvalue.Pointers(row)...)
	}, query, args...)
}

// ID returns the primary key of a row: the value itself, or a list if it has several columns.
func (l *Loader) ID(c *Chunk, row chunkRow) any {
	key := l.Table.Key
	if l.Keys != nil {
		key = l.Keys
	}
	if len(key) == 0 || l.Keys == nil && l.Table.RowKey != "" && c.index(l.Table.RowKey) < 0 {
		return row.ID
	}

	values := make([]any, len(key))
	for k, name := range key {
		if at := c.index(name); at >= 0 {
			values[k] = row.values[at]
		}
	}
	if len(values) == 1 {
		return values[0]
	}
	return values
}
