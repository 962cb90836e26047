package agentdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"rouse/agentdb/tabular"
)

// errConfine says that a write may change or read more than the rows it names, by a trigger,
// a cascade or an expression of the agent's. It has to run again, confined and row by row.
var errConfine = errors.New("this write has to be confined")

// checkPlain checks the table before a chunk is written. What is written confined is recorded row
// by row by SQLite's hook, and has no changelog row for the whole chunk.
func (l *loader) checkPlain(ctx context.Context, c *chunk) error {
	if l.tx.Confined() {
		return nil
	}

	if l.layout == nil {
		l.layout = l.table.layout
	}
	if l.layout == nil {
		t, err := readLayout(ctx, l.tx, l.table.Name)
		if err != nil {
			return err
		}
		l.layout = t
	}
	// What a long row becomes together with the columns that an upsert leaves alone, SQLite has to bound.
	if l.keys != nil && c.longest() > plainUpsert {
		return errConfine
	}
	// An upsert updates rows, which may cascade to tables that point here. And a chunk can be
	// recorded as a whole only if each of its rows can be found again.
	if !l.layout.plain || l.keys != nil && l.layout.parent || !l.numbered() && !l.keyed(c) {
		return errConfine
	}

	return nil
}

// plainUpsert is up to which length the rows of an upsert are written without a bound for what they
// become, in bytes.
const plainUpsert = 32 << 10

// longest is the length of the longest row, in bytes.
func (c *chunk) longest() (most int) {
	for r := range c.rows {
		all := 0
		for _, v := range c.row(r) {
			all += size(v)
		}
		most = max(most, all)
	}
	return most
}

// numbered says that the rows of a chunk get row ids that follow each other and are their key.
func (l *loader) numbered() bool {
	return l.keys == nil && (l.layout.byRowID || l.table.rowKey != "")
}

// keyed says that every row of a chunk names its key.
func (l *loader) keyed(c *chunk) bool {
	keys := l.keys
	if keys == nil {
		keys = l.layout.key
	}

	for _, name := range keys {
		at := c.index(name)
		if at < 0 {
			return false
		}

		for i := range c.rows {
			if c.row(i)[at] == nil {
				return false
			}
		}
	}

	return true
}

// logChunk writes the changelog's row of a chunk (C-14); see Change.
func (l *loader) logChunk(ctx context.Context, c *chunk, before string, last int64) error {
	if l.tx.Confined() {
		return nil
	}

	entry := change{op: l.op, table: l.table.Name, before: before, after: c.image}
	out := []byte{'{'}
	switch key := l.layout.key; {
	case l.keys != nil:
		// Of an upsert the rows are read back: columns that it does not set keep values that the
		// chunk does not have.
		after, err := l.images(ctx, c)
		if err != nil {
			return err
		}
		entry.after = after
		out = appendKeys(out, l.keys)
	// SQLite numbers the rows of one statement one after the other, so the first and the last are
	// enough to find them.
	case l.layout.byRowID, c.index(key[0]) < 0:
		out = append(tabular.AppendText(append(out, `"column":`...), key[0]), ',')
	default:
		out = appendKeys(out, key)
	}

	out = l.appendID(append(out, `"from":`...), l.id(c, 0, last))
	out = l.appendID(append(out, `,"to":`...), l.id(c, c.rows-1, last))
	entry.pk = string(out) + fmt.Sprintf(`,"count":%d}`, c.rows)
	_, err := logChange(l.tx, l.by, c.args[0].(string), entry)

	return err
}

func appendKeys(out []byte, keys []string) []byte {
	out = append(out, `"keys":[`...)
	for i, name := range keys {
		if i > 0 {
			out = append(out, ',')
		}
		out = tabular.AppendText(out, name)
	}

	return append(out, "],"...)
}

func (l *loader) appendID(out []byte, id any) []byte {
	list, ok := id.([]any)
	if !ok {
		return appendValue(out, id)
	}

	for i, v := range list {
		out = appendValue(append(out, "[,"[min(i, 1)]), v)
	}
	return append(out, ']')
}

// before gives the images of the rows that an upsert is about to change.
func (l *loader) before(ctx context.Context, c *chunk) (string, error) {
	// Inserted rows were not there before; and confined writes are recorded row by row.
	if l.keys == nil || l.tx.Confined() {
		return "", nil
	}
	return l.images(ctx, c)
}

// images reads the rows that have the keys of a chunk, "" when there are none.
func (l *loader) images(ctx context.Context, c *chunk) (string, error) {
	columns := l.layout.imageColumns()
	key := "(" + placeholders(len(l.keys)) + ")"
	query := "SELECT " + selection(columns) + " FROM " + quote(l.table.Name) + " WHERE (" + quoteAll(l.keys) + ") IN (VALUES " +
		key + strings.Repeat(", "+key, c.rows-1) + ")"
	rows, err := l.tx.SQL().QueryContext(ctx, query, c.values(l.keys)...)
	if err != nil {
		return "", err
	}
	defer rows.Close()

	var values []any
	for rows.Next() {
		row := make([]any, len(columns))
		if err := rows.Scan(pointers(row)...); err != nil {
			return "", err
		}
		values = append(values, row...)
	}
	if len(values) == 0 || rows.Err() != nil {
		return "", rows.Err()
	}

	return image(columns, values), nil
}
