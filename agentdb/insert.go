package agentdb

import (
	"context"
	"errors"

	"rouse/agentdb/bulk"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

const (
	maxInsert = 10000    // rows per call; larger sets need Import
	opUpsert  = "upsert" // journal only; the changelog has inserts and updates
)

// Inserted is the result of Insert. IDs holds the primary keys in the order of the rows.
type Inserted struct {
	IDs      []any    `json:"ids"`
	Count    int      `json:"count"`
	Warnings []string `json:"warnings,omitempty"`
}

// Insert inserts all rows or no row. If a row omits a column, the column's default applies. Lists
// and objects are stored as JSON text.
func (db *DB) Insert(ctx context.Context, by changelog.By, table string, rows []map[string]any) (Inserted, error) {
	if len(rows) == 0 {
		return Inserted{}, dberr.Invalid("rows", "there is no row to insert")
	}
	if len(rows) > maxInsert {
		return Inserted{}, dberr.Invalid("rows", "%d rows are more than the %d that one call can insert; write them to a file and use db_import", len(rows), maxInsert)
	}

	inserted, err := write(ctx, db, by, changelog.OpInsert, func(ctx context.Context, tx *sqlite.Tx) (Inserted, error) {
		t, err := schema.NeedTable(ctx, sqlite.Prepared{Tx: tx}, table)
		if err != nil {
			return Inserted{}, err
		}
		ids, _, err := writeRows(ctx, tx, by, t, nil, rows)
		return Inserted{IDs: ids, Count: len(rows)}, err
	})
	if err == nil {
		inserted.Warnings = db.Quota.warnings(ctx, inserted.Warnings)
	}
	return inserted, err
}

// Upsert inserts rows, or updates the rows that have the same values in the key columns. It
// writes all rows or no row. An existing row is unchanged if the new row has only key columns.
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
		t, err := schema.NeedTable(ctx, sqlite.Prepared{Tx: tx}, table)
		if err != nil {
			return Affected{}, err
		}
		names, err := t.KeyColumns(keys)
		if err != nil {
			return Affected{}, err
		}
		if err := t.EnsureUnique(ctx, tx, by, names); err != nil {
			return Affected{}, err
		}
		_, changed, err := writeRows(ctx, tx, by, t, names, rows)
		return Affected{Rows: changed}, err
	})
	if err == nil {
		done.Warnings = db.Quota.warnings(ctx, done.Warnings)
	}
	return done, err
}

// writeRows inserts rows into a table, or upserts them if there are keys. It returns the primary
// keys of the rows and the number of changed rows.
func writeRows(ctx context.Context, tx *sqlite.Tx, by changelog.By, t *schema.Table, keys []string, rows []map[string]any) (ids []any, changed int64, err error) {
	l := &bulk.Loader{Tx: tx, By: by, Op: changelog.OpInsert, Table: t, Keys: keys}
	defer func() { err = errors.Join(err, l.Close()) }()

	b := &bulk.Chunker{Columns: t.ColumnNames(), At: sqlvalue.Now(), Emit: func(c *bulk.Chunk) error {
		n, err := l.Write(ctx, c)
		changed += n
		for _, row := range c.Rows {
			ids = append(ids, l.ID(c, row))
		}
		return err
	}}
	for i, row := range rows {
		values, err := t.Values(i, row, keys)
		if err != nil {
			return nil, 0, err
		}
		if err := b.Add(i+1, values); err != nil {
			return nil, 0, err
		}
	}
	err = b.Flush()
	return ids, changed, err
}
