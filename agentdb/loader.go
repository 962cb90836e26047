package agentdb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"rouse/agentdb/sqlite"
)

// loader writes chunks into one table, each with its row in the changelog.
type loader struct {
	tx       *sqlite.Tx
	by       By
	op       string // of the changelog
	table    *Table
	keys     []string // columns by which rows are updated instead; nil only inserts
	unit     string   // what a line is called in messages: "line" or "row"
	rejected *rejects // rows that SQLite refuses are left out and collected here; nil refuses all

	layout *tableLayout // read with the first chunk, unless the write is confined

	statement *sqlite.Prepared // of the chunk before, kept while the shape stays
	shape     shape
}

// shape is what the text of a chunk's statement depends on.
type shape struct {
	pattern string
	rows    int
}

// write writes one chunk and says how many rows it changed and the last row id it gave.
func (l *loader) write(ctx context.Context, c *chunk) (changed, last int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, context.Cause(ctx)
	}

	// The transaction may be shared, so this caller's end must not end it.
	ctx = l.tx.Context(ctx)
	if err := l.checkPlain(ctx, c); err != nil {
		return 0, 0, err
	}

	before, err := l.before(ctx, c)
	if err != nil {
		return 0, 0, err
	}

	// All rows by one statement; only when that is refused are they tried one by one.
	result, err := l.exec(c)
	if refused(err) && l.rejected != nil {
		return l.writeOneByOne(ctx, c, err)
	}
	if refused(err) {
		return 0, 0, l.findRefused(c, err)
	}
	if err != nil {
		return 0, 0, err
	}

	if changed, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	if last, err = result.LastInsertId(); err != nil {
		return 0, 0, err
	}

	return changed, last, l.logChunk(ctx, c, before, last)
}

func (l *loader) exec(c *chunk) (driver.Result, error) {
	if needed := (shape{c.pattern, c.rows}); needed != l.shape {
		if err := l.close(); err != nil {
			return nil, err
		}

		statement, err := l.tx.Prepare(l.insert(c))
		if err != nil {
			return nil, err
		}
		l.statement, l.shape = statement, needed
	}

	args := c.args
	if !l.table.hasHost {
		args = args[1:]
	}

	// Rows of a refused statement are rolled back by SQLite but were seen by the hook.
	mark := l.tx.ChangeCount()
	result, err := l.statement.Exec(args)
	if err != nil {
		l.tx.DiscardChanges(mark)
	}

	return result, err
}

func (l *loader) close() error {
	if l.statement == nil {
		return nil
	}
	err := l.statement.Close()
	l.statement, l.shape = nil, shape{}
	return err
}

// insert writes the statement. In tables with host columns parameter 1 is the instant;
// the values follow in order.
func (l *loader) insert(c *chunk) string {
	row := placeholders(len(c.columns))
	columns := quoteAll(c.columns)
	if l.table.hasHost {
		columns = createdAt + ", " + updatedAt + ", " + columns
		row = "?1, ?1, " + row
	}

	onConflict := ""
	if l.keys != nil {
		onConflict = " ON CONFLICT (" + quoteAll(l.keys) + ") DO " + l.onConflict(c)
	}

	return "INSERT INTO " + quote(l.table.Name) + " (" + columns + ") VALUES (" + row + ")" + strings.Repeat(", ("+row+")", c.rows-1) + onConflict
}

// onConflict updates what is not a key, and brings a deleted row back. Rows of keys alone
// have nothing to update (OSA-54).
func (l *loader) onConflict(c *chunk) string {
	var set []string
	for _, name := range c.columns {
		if !containsFold(l.keys, name) {
			set = append(set, quote(name)+" = excluded."+quote(name))
		}
	}
	if len(set) == 0 {
		return "NOTHING"
	}

	if l.table.hasHost {
		set = append(set, updatedAt+" = excluded."+updatedAt, deletedAt+" = NULL")
	}

	return "UPDATE SET " + strings.Join(set, ", ")
}

// findRefused finds the row of a refused chunk by writing them one by one; all of it is rolled
// back afterwards.
func (l *loader) findRefused(c *chunk, whole error) error {
	for i := range c.rows {
		part := c.single(i)
		if _, err := l.exec(part); refused(err) {
			return &Error{Kind: kindInvalid, Retryable: true, Message: fmt.Sprintf("%s %d: %s; nothing was written", l.unit, part.lines[0], rowErrorText(err))}
		} else if err != nil {
			return errors.Join(whole, err)
		}
	}
	return whole
}

// writeOneByOne writes a refused chunk without the rows that SQLite refuses one by one.
func (l *loader) writeOneByOne(ctx context.Context, c *chunk, whole error) (changed, last int64, err error) {
	// The good rows are found by writing them, removed again, and then written as one chunk, so
	// that the changelog has them as one.
	if _, err := l.tx.Exec("savepoint one_by_one"); err != nil {
		return 0, 0, err
	}

	mark := l.tx.ChangeCount()
	var good []int
	for i := range c.rows {
		switch _, err := l.exec(c.single(i)); {
		case refused(err):
			if err := l.rejected.add(c.lines[i], rowErrorText(err)); err != nil {
				return 0, 0, err
			}
		case err != nil:
			return 0, 0, errors.Join(whole, err)
		default:
			good = append(good, i)
		}
	}

	for _, end := range []string{"rollback to one_by_one", "release one_by_one"} {
		if _, err := l.tx.Exec(end); err != nil {
			return 0, 0, err
		}
	}

	l.tx.DiscardChanges(mark)
	if len(good) == c.rows {
		return 0, 0, whole // refused together though each is accepted alone: do not go round for ever
	}
	if len(good) == 0 {
		return 0, 0, nil
	}

	return l.write(ctx, c.subset(good))
}

// id is the primary key of row i: the value itself, or a list when there are several
// columns. last is the id that SQLite gave to the chunk's last row.
func (l *loader) id(c *chunk, i int, last int64) any {
	key := l.table.key
	if l.keys != nil {
		key = l.keys
	}
	// LastInsertId is that of the last row, so count back.
	if len(key) == 0 || l.keys == nil && l.table.rowKey != "" && c.index(l.table.rowKey) < 0 {
		return last - int64(c.rows-1-i) // ids of one statement follow each other
	}

	values := make([]any, len(key))
	for k, name := range key {
		if at := c.index(name); at >= 0 {
			values[k] = c.row(i)[at]
		}
	}
	if len(values) == 1 {
		return values[0]
	}

	return values
}

func placeholders(n int) string { return strings.TrimPrefix(strings.Repeat(", ?", n), ", ") }

func containsFold(names []string, name string) bool {
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

func pointers(values []any) []any {
	out := make([]any, len(values))
	for i := range values {
		out[i] = &values[i]
	}
	return out
}

// subset is a chunk of some of the rows.
func (c *chunk) subset(rows []int) *chunk {
	out := &chunk{columns: c.columns, rows: len(rows), pattern: c.pattern, args: []any{c.args[0]}}
	for _, i := range rows {
		out.args = append(out.args, c.row(i)...)
		out.lines = append(out.lines, c.lines[i])
	}
	out.image = image(out.columns, out.args[1:])
	return out
}
