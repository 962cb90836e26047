package agentdb

import (
	"context"
	"fmt"
	"strings"

	"rouse/agentdb/sqlite"
	"rouse/agentdb/tabular"
)

const opUpsert = "upsert" // of the journal; the changelog has inserts and updates

// Upsert inserts rows, or updates those that have the same values in the key columns, all
// or none (OSA-54). A row of keys alone that is there already stays as it is.
func (db *DB) Upsert(ctx context.Context, by By, table string, keys []string, rows []map[string]any) (Affected, error) {
	switch {
	case len(rows) == 0:
		return Affected{}, invalid("rows", "there is no row to write")
	case len(rows) > maxInsert:
		return Affected{}, invalid("rows", "%d rows are more than the %d that one call can write; write them to a file and use db_import with mode upsert", len(rows), maxInsert)
	case len(keys) == 0:
		return Affected{}, invalid("key_columns", "name the columns that tell rows apart")
	}

	done, err := write(ctx, db, by, opUpsert, func(ctx context.Context, tx *sqlite.Tx) (Affected, error) {
		t, err := db.tableToWrite(ctx, tx, table)
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

		return upsertRows(ctx, tx, by, t, names, rows)
	})
	if err == nil {
		done.Warnings = db.quotaWarnings(ctx, done.Warnings)
	}

	return done, err
}

// keyColumns gives the names as the table has them.
func (t *Table) keyColumns(keys []string) ([]string, error) {
	var out []string
	for i, key := range keys {
		c := t.column(key)
		switch {
		case c == nil:
			return nil, invalid(fmt.Sprintf("key_columns[%d]", i), "the table %s has no column %q%s", t.Name, key, didYouMean(key, t.columnNames()))
		case containsFold(out, key):
			return nil, invalid(fmt.Sprintf("key_columns[%d]", i), "the key column %s is named twice", key)
		}

		out = append(out, c.Name)
	}

	return out, nil
}

// ensureUnique makes sure that a unique index tells rows apart by their keys.
func (t *Table) ensureUnique(ctx context.Context, tx *sqlite.Tx, by By, keys []string) error {
	if t.uniqueBy(keys) {
		return nil
	}

	name := t.Name + "_by_" + strings.Join(keys, "_")
	index := Index{Name: name[:min(len(name), maxName)], Columns: keys, Unique: true}
	if err := nameFree(tx, "key_columns", index.Name); err != nil {
		return err
	}

	err := applySchema(ctx, tx, by, now(), t.Name, index.statement(t.Name))
	// The index cannot be made because rows already share a key.
	if refused(err) {
		return invalid("key_columns", "the table %s already has rows with the same %s, so they cannot be its key", t.Name, strings.Join(keys, ", "))
	}

	return err
}

func upsertRows(ctx context.Context, tx *sqlite.Tx, by By, t *Table, keys []string, rows []map[string]any) (out Affected, err error) {
	l := &loader{tx: tx, by: by, op: opInsert, table: t, keys: keys, unit: "row"}
	defer func() {
		if e := l.close(); err == nil {
			err = e
		}
	}()

	b := &chunker{columns: t.columnNames(), size: min(len(rows), chunkRows), at: now(), emit: func(c *chunk) error {
		n, _, err := l.write(ctx, c)
		out.Rows += n
		return err
	}}

	values := make([]any, len(t.Columns)) // of one row after the other; the chunk has copies
	for i, row := range rows {
		if err := t.values(values, i, row); err != nil {
			return Affected{}, err
		}

		for n, c := range t.Columns {
			if _, missing := values[n].(tabular.Absent); containsFold(keys, c.Name) && (missing || values[n] == nil) {
				return Affected{}, invalid(fmt.Sprintf("rows[%d].%s", i, c.Name), "row %d has no value in the key column %s", i+1, c.Name)
			}
		}

		if err := b.add(i+1, values); err != nil {
			return Affected{}, err
		}
	}

	err = b.flush()
	return out, err
}
