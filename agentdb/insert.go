package agentdb

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"rouse/agentdb/sqlite"
	"rouse/agentdb/tabular"
)

const maxInsert = 10000 // rows of one call; more come by import

// Inserted is the result of Insert: the primary keys of the rows in their order.
type Inserted struct {
	IDs      []any    `json:"ids"`
	Count    int      `json:"count"`
	Warnings []string `json:"warnings,omitempty"`
}

// encode is json.Marshal of it, for there may be ten thousand ids, and most are numbers.
func (i Inserted) encode() ([]byte, error) {
	ids := i.IDs
	i.IDs = nil
	rest, err := json.Marshal(i)
	if err != nil || ids == nil {
		return rest, err
	}

	out := append(make([]byte, 0, len(rest)+8*len(ids)), `{"ids":[`...)
	for n, id := range ids {
		if n > 0 {
			out = append(out, ',')
		}
		if number, ok := id.(int64); ok {
			out = strconv.AppendInt(out, number, 10)
			continue
		}

		encoded, err := json.Marshal(id)
		if err != nil {
			return nil, err
		}
		out = append(out, encoded...)
	}

	return append(append(out, ']'), bytes.TrimPrefix(rest, []byte(`{"ids":null`))...), nil
}

// Insert writes rows, all or none. A row may leave columns out; their default applies.
// Lists and objects are stored as JSON text.
func (db *DB) Insert(ctx context.Context, by By, table string, rows []map[string]any) (Inserted, error) {
	if len(rows) == 0 {
		return Inserted{}, invalid("rows", "there is no row to insert")
	}
	if len(rows) > maxInsert {
		return Inserted{}, invalid("rows", "%d rows are more than the %d that one call can insert; write them to a file and use db_import", len(rows), maxInsert)
	}

	inserted, err := write(ctx, db, by, opInsert, func(ctx context.Context, tx *sqlite.Tx) (Inserted, error) {
		t, err := db.tableToWrite(ctx, tx, table)
		if err != nil {
			return Inserted{}, err
		}
		return insertRows(ctx, tx, by, t, rows)
	})
	if err == nil {
		inserted.Warnings = db.quotaWarnings(ctx, inserted.Warnings)
	}

	return inserted, err
}

func insertRows(ctx context.Context, tx *sqlite.Tx, by By, t *Table, rows []map[string]any) (out Inserted, err error) {
	l := &loader{tx: tx, by: by, op: opInsert, table: t, unit: "row"}
	defer func() {
		if e := l.close(); err == nil {
			err = e
		}
	}()

	b := &chunker{columns: t.columnNames(), size: min(len(rows), chunkRows), at: now(), emit: func(c *chunk) error {
		_, last, err := l.write(ctx, c)
		if err != nil {
			return err
		}

		for i := range c.rows {
			out.IDs = append(out.IDs, l.id(c, i, last))
		}
		return nil
	}}

	out.IDs = make([]any, 0, len(rows))
	values := make([]any, len(t.Columns)) // of one row after the other; the chunk has copies
	for i, row := range rows {
		if err := t.values(values, i, row); err != nil {
			return Inserted{}, err
		}
		if err := b.add(i+1, values); err != nil {
			return Inserted{}, err
		}
	}

	out.Count = len(rows)
	return out, b.flush()
}

// values puts a row into the order of the table's columns.
func (t *Table) values(into []any, i int, row map[string]any) error {
	for n := range into {
		into[n] = tabular.Absent{}
	}

	// From the end, for what most rows leave out is the id, the first: nobody looks for it once all keys are found.
	left := len(row)
	for n := len(t.Columns) - 1; n >= 0 && left > 0; n-- {
		if v, ok := row[t.Columns[n].Name]; ok {
			left--
			if err := t.setValue(into, n, i, v); err != nil {
				return err
			}
		}
	}

	// Keys that are left may be columns in another case.
	for n, c := range t.Columns {
		if left == 0 {
			return nil
		}
		if _, exact := row[c.Name]; exact {
			continue
		}

		if v, ok := foldedKey(row, c.Name); ok {
			left--
			if err := t.setValue(into, n, i, v); err != nil {
				return err
			}
		}
	}

	// A column that does not exist would otherwise be dropped without a word.
	if left > 0 {
		return t.unknownColumn(i, row)
	}
	return nil
}

// setValue puts a value of row i into the place of column n.
func (t *Table) setValue(into []any, n, i int, v any) error {
	c := t.Columns[n]
	value, err := storable(v)
	if err != nil {
		return invalid(fmt.Sprintf("rows[%d].%s", i, c.Name), "the value of %s in row %d cannot be stored: %v", c.Name, i+1, err)
	}
	if value == nil && c.Name == t.rowKey {
		return nil // NULL asks for the next id
	}

	into[n] = value
	return nil
}

// foldedKey finds a key written in another case, as SQLite would.
func foldedKey(row map[string]any, column string) (any, bool) {
	for name, v := range row {
		if containsFold([]string{column}, name) {
			return v, true
		}
	}
	return nil, false
}

func (t *Table) unknownColumn(i int, row map[string]any) error {
	for name := range row {
		field := fmt.Sprintf("rows[%d].%s", i, name)
		switch {
		case hostColumn(name):
			return invalid(field, "the column %s is written by the host; leave it out", name)
		case t.column(name) == nil:
			return invalid(field, "the table %s has no column %q%s", t.Name, name, didYouMean(name, t.columnNames()))
		}
	}
	return invalid(fmt.Sprintf("rows[%d]", i), "row %d names a column twice in different cases", i+1)
}

// storable turns a value of Go or JSON into one that SQLite holds.
func storable(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, int64, []byte:
		return v, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case int:
		return int64(v), nil
	case float64:
		return tabular.WholeFloat(v), nil
	case realNumber:
		return float64(v), nil
	case json.Number:
		return tabular.Number(v), nil
	// As the host writes instants, so that they compare as texts.
	case time.Time:
		return v.UTC().Format(timeLayout), nil
	}

	encoded, err := json.Marshal(v)
	return string(encoded), err
}
