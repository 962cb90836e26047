package agentdb

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

// errConfine says that a write may change or read more than the rows it names, by a trigger,
// a cascade or an expression of the agent's. It has to run again, confined and row by row.
var errConfine = errors.New("this write has to be confined")

// plainUpsert is the longest row, in bytes, that an unconfined upsert writes. The length of the row
// that it becomes, together with the columns that the upsert leaves alone, is not bounded there.
const plainUpsert = 32 << 10

// loader writes chunks into one table, each with its entry in the changelog.
type loader struct {
	tx       *sqlite.Tx
	by       changelog.By
	op       string // of the changelog
	table    *schema.Table
	keys     []string // columns by which rows are updated instead; nil only inserts
	rejected *rejects // collects the rows that SQLite refuses; if nil, a refused row is an error

	layout    *changelog.Layout // read with the first chunk, unless the write is confined
	statement *sql.Stmt         // writes a row of the columns
	columns   []string
}

// write writes one chunk and returns how many rows it changed. It removes refused rows from the
// chunk.
func (l *loader) write(ctx context.Context, c *chunk) (changed int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}

	// The transaction may be shared, so this caller's end must not end it.
	ctx = l.tx.Context(ctx)
	if err := l.checkPlain(ctx, c); err != nil {
		return 0, err
	}
	before, err := l.images(ctx, c)
	if err != nil {
		return 0, err
	}

	if l.statement == nil || !slices.Equal(l.columns, c.columns) {
		if err := l.close(); err != nil {
			return 0, err
		}
		if l.statement, err = l.tx.SQL().PrepareContext(ctx, l.insert(c)); err != nil {
			return 0, err
		}
		l.columns = c.columns
	}

	var written []chunkRow
	for _, row := range c.rows {
		n, err := l.writeRow(ctx, c.at, &row)
		switch {
		case err == nil:
			changed += n
			written = append(written, row)
		case !dberr.Refused(err):
			return 0, err
		case l.rejected == nil:
			return 0, &dberr.Error{Kind: dberr.KindInvalid, Retryable: true, Message: fmt.Sprintf("row %d: %s; nothing was written", row.line, dberr.RowText(err))}
		default:
			if err := l.rejected.add(row.line, dberr.RowText(err)); err != nil {
				return 0, err
			}
		}
	}
	if c.rows = written; len(written) == 0 {
		return 0, nil
	}
	return changed, l.logChunk(ctx, c, before)
}

func (l *loader) writeRow(ctx context.Context, at string, row *chunkRow) (changed int64, err error) {
	args := row.values
	if l.table.HasHostColumns {
		args = append([]any{at}, args...)
	}

	// A row that is refused was seen by the hook all the same.
	mark := l.tx.ChangeCount()
	result, err := l.statement.ExecContext(ctx, args...)
	if err != nil {
		l.tx.DiscardChanges(mark)
		return 0, err
	}
	if row.id, err = result.LastInsertId(); err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (l *loader) close() error {
	if l.statement == nil {
		return nil
	}
	err := l.statement.Close()
	l.statement = nil
	return err
}

// insert writes the statement for one row. In tables with host columns parameter 1 is the time of
// writing.
func (l *loader) insert(c *chunk) string {
	row, columns := sqltext.Placeholders(len(c.columns)), sqltext.QuoteAll(c.columns)
	if l.table.HasHostColumns {
		row, columns = "?1, ?1, "+row, sqltext.ColumnCreated+", "+sqltext.ColumnUpdated+", "+columns
	}

	query := "INSERT INTO " + sqltext.Quote(l.table.Name) + " (" + columns + ") VALUES (" + row + ")"
	if l.keys != nil {
		query += " ON CONFLICT (" + sqltext.QuoteAll(l.keys) + ") DO " + l.onConflict(c)
	}
	return query
}

// onConflict updates what is not a key, and brings a deleted row back. Rows of keys alone
// have nothing to update (OSA-54).
func (l *loader) onConflict(c *chunk) string {
	var set []string
	for _, name := range c.columns {
		if !sqltext.ContainsFold(l.keys, name) {
			set = append(set, sqltext.Quote(name)+" = excluded."+sqltext.Quote(name))
		}
	}
	if len(set) == 0 {
		return "NOTHING"
	}

	if l.table.HasHostColumns {
		set = append(set, sqltext.ColumnUpdated+" = excluded."+sqltext.ColumnUpdated, sqltext.ColumnDeleted+" = NULL")
	}

	return "UPDATE SET " + strings.Join(set, ", ")
}

// checkPlain returns errConfine if a chunk cannot be written with one entry in the changelog. A
// confined write is recorded row by row by SQLite's hook instead.
func (l *loader) checkPlain(ctx context.Context, c *chunk) (err error) {
	if l.tx.Confined() {
		return nil
	}
	if l.layout == nil {
		if l.layout, err = changelog.ReadLayout(ctx, l.tx, l.table.Name); err != nil {
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
	if !l.layout.Plain || l.keys != nil && (l.layout.Parent || slices.ContainsFunc(c.rows, tooLong)) || !l.numbered() && !l.keyed(c) {
		return errConfine
	}
	return nil
}

// numbered reports whether the rows of a chunk get row ids that follow each other and are their
// key.
func (l *loader) numbered() bool {
	return l.keys == nil && (l.layout.ByRowID || l.table.RowKey != "")
}

// keyed reports whether every row of a chunk has a value for each column of its key.
func (l *loader) keyed(c *chunk) bool {
	keys := l.keys
	if keys == nil {
		keys = l.layout.Key
	}
	return !slices.ContainsFunc(keys, func(name string) bool {
		at := c.index(name)
		return at < 0 || slices.ContainsFunc(c.rows, func(row chunkRow) bool { return row.values[at] == nil })
	})
}

// logChunk writes the changelog's entry of a chunk (C-14); see Change. before has the rows that an
// upsert found.
func (l *loader) logChunk(ctx context.Context, c *chunk, before [][]any) error {
	if l.tx.Confined() {
		return nil
	}

	entry := changelog.Entry{Op: l.op, Table: l.table.Name}
	columns, rows := c.columns, make([][]any, len(c.rows))
	for i, row := range c.rows {
		rows[i] = row.values
	}

	keys := l.layout.Key
	if l.keys != nil {
		// Columns that the upsert does not set keep values that the chunk does not have.
		keys, columns = l.keys, l.layout.ImageColumns()
		var err error
		if rows, err = l.images(ctx, c); err != nil {
			return err
		}

		key := func(row []any) string { return changelog.Image{columns, row}.Pick(keys).String() }
		stays := map[string]bool{}
		for _, row := range rows {
			stays[key(row)] = true
		}
		// What was there of a refused row does not belong to the chunk.
		entry.Before = rowsImage(columns, slices.DeleteFunc(before, func(row []any) bool { return !stays[key(row)] }))
	}
	entry.After = rowsImage(columns, rows)

	var pk []byte
	if l.keys == nil && (l.layout.ByRowID || c.index(keys[0]) < 0) {
		// SQLite numbers rows one after the other, so the first and the last number are enough.
		pk = tabular.AppendText([]byte(`{"column":`), keys[0])
	} else {
		pk = sqlvalue.AppendNames([]byte(`{"keys":`), keys)
	}
	pk = l.appendID(append(pk, `,"from":`...), l.id(c, c.rows[0]))
	pk = l.appendID(append(pk, `,"to":`...), l.id(c, c.rows[len(c.rows)-1]))
	entry.PK = fmt.Sprintf(`%s,"count":%d}`, pk, len(c.rows))
	_, err := changelog.Log(l.tx, l.by, c.at, entry)
	return err
}

func (l *loader) appendID(out []byte, id any) []byte {
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
func (l *loader) images(ctx context.Context, c *chunk) ([][]any, error) {
	if l.keys == nil || l.tx.Confined() {
		return nil, nil
	}

	columns := l.layout.ImageColumns()
	key := "(" + sqltext.Placeholders(len(l.keys)) + ")"
	query := "SELECT " + changelog.Selection(columns) + " FROM " + sqltext.Quote(l.table.Name) + " WHERE (" + sqltext.QuoteAll(l.keys) + ") IN (VALUES " +
		key + strings.Repeat(", "+key, len(c.rows)-1) + ")"
	var args []any
	for _, row := range c.rows {
		for _, name := range l.keys {
			args = append(args, row.values[c.index(name)])
		}
	}

	return sqlite.Collect(ctx, l.tx.SQL(), func(scan sqlite.Scanner) ([]any, error) {
		row := make([]any, len(columns))
		return row, scan(sqlvalue.Pointers(row)...)
	}, query, args...)
}

// id returns the primary key of a row: the value itself, or a list if it has several columns.
func (l *loader) id(c *chunk, row chunkRow) any {
	key := l.table.Key
	if l.keys != nil {
		key = l.keys
	}
	if len(key) == 0 || l.keys == nil && l.table.RowKey != "" && c.index(l.table.RowKey) < 0 {
		return row.id
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
