package agentdb

import (
	"context"
	"slices"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// Affected is the result of Update, Delete, Restore and Upsert.
type Affected struct {
	Rows     int64    `json:"rows_affected"`
	Warnings []string `json:"warnings,omitempty"`
}

// Update sets columns of the rows where all of the given columns have the given values
// (OSA-55). Deleted rows are left alone unless deleted is true.
func (db *DB) Update(ctx context.Context, by changelog.By, table string, set, where map[string]any, deleted bool) (Affected, error) {
	if len(set) == 0 {
		return Affected{}, dberr.Invalid("set", "say which columns to set, as an object of column and value")
	}
	return db.updateRows(ctx, by, changelog.OpUpdate, table, func(t *Table) (query string, args []any, err error) {
		columns, values, err := t.pairs("set", set)
		if err != nil {
			return "", nil, err
		}

		if t.hasHost {
			columns, values = append(columns, sqltext.ColumnUpdated), append(values, sqlvalue.Now())
		}

		query, args, err = t.where(where)
		// A row that is deleted is not there for the agent, and would change unseen.
		if t.hasHost && !deleted {
			query += " AND " + sqltext.ColumnDeleted + " IS NULL"
		}

		return setting(t, columns) + query, append(values, args...), err
	})
}

// Delete marks rows as deleted; Restore brings them back.
func (db *DB) Delete(ctx context.Context, by changelog.By, table string, where map[string]any) (Affected, error) {
	return db.setDeleted(ctx, by, changelog.OpDelete, table, where)
}

// Restore brings rows back that Delete has marked.
func (db *DB) Restore(ctx context.Context, by changelog.By, table string, where map[string]any) (Affected, error) {
	return db.setDeleted(ctx, by, changelog.OpRestore, table, where)
}

func (db *DB) setDeleted(ctx context.Context, by changelog.By, op, table string, where map[string]any) (Affected, error) {
	return db.updateRows(ctx, by, op, table, func(t *Table) (string, []any, error) {
		if !t.hasHost {
			return "", nil, dberr.Invalid("table", "the table %s was made with SQL and has no column %s, so its rows cannot be marked: delete them for good with db_execute (DELETE … WHERE), or make a new table with db_create_table", t.Name, sqltext.ColumnDeleted)
		}

		query, args, err := t.where(where)
		at := sqlvalue.Now()
		values, was := []any{at, at}, " AND "+sqltext.ColumnDeleted+" IS NULL"
		if op == changelog.OpRestore {
			values, was = []any{nil, at}, " AND "+sqltext.ColumnDeleted+" IS NOT NULL"
		}
		return setting(t, []string{sqltext.ColumnDeleted, sqltext.ColumnUpdated}) + query + was, append(values, args...), err
	})
}

// updateRows runs one UPDATE, confined and recorded row by row.
func (db *DB) updateRows(ctx context.Context, by changelog.By, op, table string, write func(*Table) (string, []any, error)) (Affected, error) {
	done, err := confined(ctx, db, by, op, recorded(by, op, func(ctx context.Context, tx *sqlite.Tx) (Affected, error) {
		t, err := needTable(ctx, sqlite.Prepared{Tx: tx}, table)
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
		done.Warnings = db.quotaWarnings(ctx, done.Warnings)
	}

	return done, err
}

func setting(t *Table, columns []string) string {
	set := make([]string, len(columns))
	for i, name := range columns {
		set[i] = sqltext.Quote(name) + " = ?"
	}
	return "UPDATE " + sqltext.Quote(t.Name) + " SET " + strings.Join(set, ", ")
}

// where writes the condition that all columns have these values; null asks for NULL.
func (t *Table) where(where map[string]any) (string, []any, error) {
	if len(where) == 0 {
		return "", nil, dberr.Invalid("where", "say which rows, as an object of column and value; for other conditions use db_execute")
	}

	for name, value := range where {
		switch value.(type) {
		case []any, map[string]any: // taken for the text of it no row would have
			return "", nil, dberr.Invalid("where."+name, "where says which value %s has, and is given a list or an object: for one of several values, and for other conditions, use db_execute; a stored list is asked for as its JSON text", name)
		}
	}

	columns, values, err := t.pairs("where", where)
	if err != nil {
		return "", nil, err
	}

	for i, name := range columns {
		// IS and not =, so that null finds NULL.
		columns[i] = sqltext.Quote(name) + " IS ?"
	}

	return " WHERE " + strings.Join(columns, " AND "), values, nil
}

// pairs checks the columns of an object and gives them in order with their values. The
// host's columns can be asked for, not set.
func (t *Table) pairs(field string, from map[string]any) (columns []string, values []any, err error) {
	names := make([]string, 0, len(from))
	for name := range from {
		names = append(names, name)
	}

	// Always the same statement for the same columns, and the same error of several.
	slices.Sort(names)
	for _, given := range names {
		name, c := given, t.column(given)
		host := t.hasHost && sqltext.IsHostColumn(name)
		switch {
		case host && field == "set":
			return nil, nil, dberr.Invalid(field+"."+name, "the column %s is written by the host; leave it out", name)
		case c == nil && !host:
			return nil, nil, dberr.Invalid(field+"."+name, "the table %s has no column %q%s", t.Name, name, sqltext.DidYouMean(name, t.columnNames()))
		case c != nil:
			name = c.Name
		}
		if sqltext.ContainsFold(columns, name) {
			return nil, nil, dberr.Invalid(field+"."+name, "the column %s is named twice", name)
		}

		value, err := sqlvalue.Storable(from[given])
		if err != nil {
			return nil, nil, dberr.Invalid(field+"."+name, "the value of %s cannot be stored: %v", name, err)
		}

		columns, values = append(columns, name), append(values, value)
	}

	return columns, values, nil
}
