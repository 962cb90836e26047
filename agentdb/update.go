package agentdb

import (
	"context"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// Affected is the result of Update, Delete, Restore and Upsert.
type Affected struct {
	Rows     int64    `json:"rows_affected"`
	Warnings []string `json:"warnings,omitempty"`
}

// Update sets columns in all rows that match where. It skips deleted rows unless deleted is true.
func (db *DB) Update(ctx context.Context, by changelog.By, table string, set, where map[string]any, deleted bool) (Affected, error) {
	if len(set) == 0 {
		return Affected{}, dberr.Invalid("set", "say which columns to set, as an object of column and value")
	}
	return updateRows(ctx, db, by, changelog.OpUpdate, table, func(t *schema.Table) (query string, args []any, err error) {
		columns, values, err := t.Pairs("set", set)
		if err != nil {
			return "", nil, err
		}

		if t.HasHostColumns {
			columns, values = append(columns, sqltext.ColumnUpdated), append(values, sqlvalue.Now())
		}

		query, args, err = t.Where(where)
		// The agent does not see deleted rows, so it should not change them by accident.
		if t.HasHostColumns && !deleted {
			query += " AND " + sqltext.ColumnDeleted + " IS NULL"
		}

		return setting(t, columns) + query, append(values, args...), err
	})
}

// Delete marks rows as deleted. Restore reverses it.
func (db *DB) Delete(ctx context.Context, by changelog.By, table string, where map[string]any) (Affected, error) {
	return setDeleted(ctx, db, by, changelog.OpDelete, table, where)
}

// Restore removes the deletion mark that Delete has set.
func (db *DB) Restore(ctx context.Context, by changelog.By, table string, where map[string]any) (Affected, error) {
	return setDeleted(ctx, db, by, changelog.OpRestore, table, where)
}

func setDeleted(ctx context.Context, db *DB, by changelog.By, op, table string, where map[string]any) (Affected, error) {
	return updateRows(ctx, db, by, op, table, func(t *schema.Table) (string, []any, error) {
		if !t.HasHostColumns {
			return "", nil, dberr.Invalid("table", "the table %s was made with SQL and has no column %s, so its rows cannot be marked: delete them for good with db_execute (DELETE … WHERE), or make a new table with db_create_table", t.Name, sqltext.ColumnDeleted)
		}

		query, args, err := t.Where(where)
		at := sqlvalue.Now()
		values, was := []any{at, at}, " AND "+sqltext.ColumnDeleted+" IS NULL"
		if op == changelog.OpRestore {
			values, was = []any{nil, at}, " AND "+sqltext.ColumnDeleted+" IS NOT NULL"
		}
		return setting(t, []string{sqltext.ColumnDeleted, sqltext.ColumnUpdated}) + query + was, append(values, args...), err
	})
}

// updateRows runs one confined UPDATE and records each changed row.
func updateRows(ctx context.Context, db *DB, by changelog.By, op, table string, write func(*schema.Table) (string, []any, error)) (Affected, error) {
	done, err := confined(ctx, db, by, op, recorded(by, op, func(ctx context.Context, tx *sqlite.Tx) (Affected, error) {
		t, err := schema.NeedTable(ctx, sqlite.Prepared{Tx: tx}, table)
		if err != nil {
			return Affected{}, err
		}

		query, args, err := write(t)
		if err != nil {
			return Affected{}, err
		}

		result, err := tx.SQL().ExecContext(ctx, query, args...)
		if err != nil {
			return Affected{}, err
		}

		n, err := result.RowsAffected()
		return Affected{Rows: n}, err
	}))
	if err == nil {
		done.Warnings = db.Quota.warnings(ctx, done.Warnings)
	}

	return done, err
}

func setting(t *schema.Table, columns []string) string {
	set := make([]string, len(columns))
	for i, name := range columns {
		set[i] = sqltext.Quote(name) + " = ?"
	}
	return "UPDATE " + sqltext.Quote(t.Name) + " SET " + strings.Join(set, ", ")
}
