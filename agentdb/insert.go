package agentdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/agentdb/tabular"
	"rouse/internal/storage/sqlite"
)

const (
	maxInsert = 10000    // rows of one call; more come by import
	opUpsert  = "upsert" // of the journal; the changelog has inserts and updates
)

// Inserted is the result of Insert: the primary keys of the rows in their order.
type Inserted struct {
	IDs      []any    `json:"ids"`
	Count    int      `json:"count"`
	Warnings []string `json:"warnings,omitempty"`
}

// Insert writes rows, all or none. A row may leave columns out; their default applies.
// Lists and objects are stored as JSON text.
func (db *DB) Insert(ctx context.Context, by changelog.By, table string, rows []map[string]any) (Inserted, error) {
	if len(rows) == 0 {
		return Inserted{}, dberr.Invalid("rows", "there is no row to insert")
	}
	if len(rows) > maxInsert {
		return Inserted{}, dberr.Invalid("rows", "%d rows are more than the %d that one call can insert; write them to a file and use db_import", len(rows), maxInsert)
	}

	inserted, err := write(ctx, db, by, changelog.OpInsert, func(ctx context.Context, tx *sqlite.Tx) (Inserted, error) {
		t, err := needTable(ctx, sqlite.Prepared{Tx: tx}, table)
		if err != nil {
			return Inserted{}, err
		}
		ids, _, err := t.writeRows(ctx, tx, by, nil, rows)
		return Inserted{IDs: ids, Count: len(rows)}, err
	})
	if err == nil {
		inserted.Warnings = db.quotaWarnings(ctx, inserted.Warnings)
	}
	return inserted, err
}

// Upsert inserts rows, or updates those that have the same values in the key columns, all
// or none (OSA-54). A row of keys alone that is there already stays as it is.
func (db *DB) Upsert(ctx context.Context, by changelog.By, table string, keys []string, rows []map[string]any) (Affected, error) {
	switch {
	case len(rows) == 0:
		return Affected{}, dberr.Invalid("rows", "there is no row to write")
	case len(rows) > maxInsert:
		return Affected{}, dberr.Invalid("rows", "%d rows are more than the %d that one call can write; write them to a file and use db_import with mode upsert", len(rows), maxInsert)
	case len(keys) == 0:
		return Affected{}, dberr.Invalid("key_columns", "name the columns that tell rows apart")
	}

	done, err := write(ctx, db, by, opUpsert, func(ctx context.Context, tx *sqlite.Tx) (Affected, error) {
		t, err := needTable(ctx, sqlite.Prepared{Tx: tx}, table)
		if err != nil {
			return Affected{}, err
		}
		names, err := t.keyColumns(keys)
		if err != nil {
			return Affected{}, err
		}
		if err := t.ensureUnique(ctx, tx, by, names); err != nil {
			return Affected{}, err
		}
		_, changed, err := t.writeRows(ctx, tx, by, names, rows)
		return Affected{Rows: changed}, err
	})
	if err == nil {
		done.Warnings = db.quotaWarnings(ctx, done.Warnings)
	}
	return done, err
}

// keyColumns returns the names as the table has them.
func (t *Table) keyColumns(keys []string) ([]string, error) {
	var out []string
	for i, key := range keys {
		c := t.column(key)
		switch {
		case c == nil:
			return nil, dberr.Invalid(fmt.Sprintf("key_columns[%d]", i), "the table %s has no column %q%s", t.Name, key, sqltext.DidYouMean(key, t.columnNames()))
		case sqltext.ContainsFold(out, key):
			return nil, dberr.Invalid(fmt.Sprintf("key_columns[%d]", i), "the key column %s is named twice", key)
		}
		out = append(out, c.Name)
	}
	return out, nil
}

// ensureUnique makes sure that a unique index tells rows apart by their keys: ON CONFLICT needs one
// over exactly these columns.
func (t *Table) ensureUnique(ctx context.Context, tx *sqlite.Tx, by changelog.By, keys []string) error {
	same := func(columns []string) bool {
		return len(columns) == len(keys) && !slices.ContainsFunc(columns, func(name string) bool { return !sqltext.ContainsFold(keys, name) })
	}
	if same(t.key) || slices.ContainsFunc(t.Indexes, func(i Index) bool { return i.Unique && same(i.Columns) }) {
		return nil
	}

	name := t.Name + "_by_" + strings.Join(keys, "_")
	index := Index{Name: name[:min(len(name), sqltext.MaxName)], Columns: keys, Unique: true}
	if err := nameFree(tx, "key_columns", index.Name); err != nil {
		return err
	}

	err := applySchema(ctx, tx, by, sqlvalue.Now(), t.Name, index.statement(t.Name))
	if dberr.Refused(err) {
		return dberr.Invalid("key_columns", "the table %s already has rows with the same %s, so they cannot be its key", t.Name, strings.Join(keys, ", "))
	}
	return err
}

// writeRows inserts rows, or upserts them if there are keys. It returns the primary keys of the
// rows and how many rows changed.
func (t *Table) writeRows(ctx context.Context, tx *sqlite.Tx, by changelog.By, keys []string, rows []map[string]any) (ids []any, changed int64, err error) {
	l := &loader{tx: tx, by: by, op: changelog.OpInsert, table: t, keys: keys}
	defer func() { err = errors.Join(err, l.close()) }()

	b := &chunker{columns: t.columnNames(), at: sqlvalue.Now(), emit: func(c *chunk) error {
		n, err := l.write(ctx, c)
		changed += n
		for _, row := range c.rows {
			ids = append(ids, l.id(c, row))
		}
		return err
	}}
	for i, row := range rows {
		values, err := t.values(i, row, keys)
		if err != nil {
			return nil, 0, err
		}
		if err := b.add(i+1, values); err != nil {
			return nil, 0, err
		}
	}
	err = b.flush()
	return ids, changed, err
}

// values puts row i into the order of the table's columns. Each of the keys needs a value.
func (t *Table) values(i int, row map[string]any, keys []string) ([]any, error) {
	out := make([]any, len(t.Columns))
	for n := range out {
		out[n] = tabular.Absent{}
	}

	given := map[int]bool{}
	for _, name := range slices.Sorted(maps.Keys(row)) { // of several errors always the same
		n := slices.IndexFunc(t.Columns, func(c Column) bool { return strings.EqualFold(c.Name, name) })
		problem := func(format string, args ...any) error {
			return dberr.Invalid(fmt.Sprintf("rows[%d].%s", i, name), format, args...)
		}
		switch {
		case n < 0 && sqltext.IsHostColumn(name):
			return nil, problem("the column %s is written by the host; leave it out", name)
		case n < 0:
			return nil, problem("the table %s has no column %q%s", t.Name, name, sqltext.DidYouMean(name, t.columnNames()))
		case given[n]:
			return nil, dberr.Invalid(fmt.Sprintf("rows[%d]", i), "row %d names a column twice in different cases", i+1)
		}

		given[n] = true
		value, err := sqlvalue.Storable(row[name])
		if err != nil {
			return nil, problem("the value of %s in row %d cannot be stored: %v", t.Columns[n].Name, i+1, err)
		}
		if value != nil || t.Columns[n].Name != t.rowKey { // NULL asks for the next id
			out[n] = value
		}
	}

	for n, c := range t.Columns {
		if _, missing := out[n].(tabular.Absent); (missing || out[n] == nil) && sqltext.ContainsFold(keys, c.Name) {
			return nil, dberr.Invalid(fmt.Sprintf("rows[%d].%s", i, c.Name), "row %d has no value in the key column %s", i+1, c.Name)
		}
	}
	return out, nil
}
