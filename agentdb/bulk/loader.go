// Package bulk writes many rows into one table, in chunks with one changelog entry each.
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

// ErrConfine is the error of a write that may change or read other rows. The causes are triggers,
// cascades and expressions of the agent. The caller must repeat the write confined, row by row.
var ErrConfine = errors.New("this write has to be confined")

// plainUpsert is the maximum size of a row in an unconfined upsert, in bytes. An unconfined write
// has no limit for the resulting row, which includes the columns that the upsert does not set.
const plainUpsert = 32 << 10

// Loader writes chunks into one table and logs an entry for each.
type Loader struct {
	Tx    *sqlite.Tx
	By    changelog.By
	Op    string // operation in the changelog
	Table *schema.Table
	Keys  []string // key columns of an upsert; nil means insert
	// Rejected collects the rows that SQLite rejects. If nil, a rejected row is an error.
	Rejected *Rejects

	layout    *changelog.Layout // read with the first chunk; nil if confined
	statement *sql.Stmt         // writes one row with the columns below
	columns   []string
}

// Write writes one chunk and returns the number of changed rows. It removes rejected rows from
// the chunk.
func (l *Loader) Write(ctx context.Context, c *Chunk) (changed int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}

	// The transaction may be shared, so cancelling this caller must not cancel it.
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

	// SQLite's hook also records rows that are then rejected.
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

// Close closes the prepared statement.
func (l *Loader) Close() error {
	if l.statement == nil {
		return nil
	}
	err := l.statement.Close()
	l.statement = nil
	return err
}

// insert returns the statement for one row. In tables with host columns, parameter 1 is the time
// of writing.
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

// onConflict returns the action for an existing row: it sets all columns except the keys and
// restores a deleted row. If the row has only keys, it does nothing.
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

// checkPlain returns ErrConfine if a chunk cannot be logged with one changelog entry. In a
// confined write, SQLite's hook records each row instead.
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
	// An upsert updates rows, which may cascade to tables that refer to this one. A chunk can be
	// logged as a whole only if each of its rows can be identified later.
	if !l.layout.Plain || l.Keys != nil && (l.layout.Parent || slices.ContainsFunc(c.Rows, tooLong)) || !l.numbered() && !l.keyed(c) {
		return ErrConfine
	}
	return nil
}

// numbered reports whether the rows of a chunk get consecutive row ids as their keys.
func (l *Loader) numbered() bool {
	return l.Keys == nil && (l.layout.ByRowID || l.Table.RowKey != "")
}

// keyed reports whether every row of a chunk has a value for each key column.
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

// logChunk writes the changelog entry of a chunk; see changelog.Change. before has the rows that
// existed before an upsert.
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
		// Columns that the upsert does not set keep their values, which are not in the chunk.
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
		// Leave out the old values of rejected rows.
		entry.Before = rowsImage(columns, slices.DeleteFunc(before, func(row []any) bool { return !stays[key(row)] }))
	}
	entry.After = rowsImage(columns, rows)

	var pk []byte
	if l.Keys == nil && (l.layout.ByRowID || c.index(keys[0]) < 0) {
		// SQLite gives consecutive numbers, so the first and the last are enough.
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

// rowsImage returns rows in the changelog's form {"columns":[…],"rows":[[…],…]}, or "" if there
// are no rows.
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

// images returns the existing rows with the keys of a chunk. It returns no rows for an insert and
// for a confined write.
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

// ID returns the primary key of a row: the value itself, or a list if the key has several
// columns.
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
