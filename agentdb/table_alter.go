package agentdb

import (
	"context"
	"fmt"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// AlterTable adds columns to a table. A column that cannot be NULL and has no default gets
// 0, ” or X” in the rows that are there (OSA-53).
func (db *DB) AlterTable(ctx context.Context, by changelog.By, table string, add []Column) (Migrated, error) {
	if len(add) == 0 {
		return Migrated{}, dberr.Invalid("add_columns", "name at least one column to add")
	}

	done, err := withBackup(ctx, db, by, func() (Migrated, error) { return db.alterTable(ctx, by, table, add) })
	if err == nil {
		done.Warnings = append(db.quotaWarnings(ctx, done.Warnings), db.migrationFileWarnings(ctx)...)
	}
	return done, err
}

func (db *DB) alterTable(ctx context.Context, by changelog.By, table string, add []Column) (Migrated, error) {
	return confined(ctx, db, by, "alter_table", func(ctx context.Context, tx *sqlite.Tx) (Migrated, error) {
		t, err := needTable(ctx, sqlite.Prepared{Tx: tx}, table)
		if err != nil {
			return Migrated{}, inField("name", err)
		}

		up, down, err := t.additions(add)
		if err != nil {
			return Migrated{}, err
		}
		if err := applySchema(ctx, tx, by, sqlvalue.Now(), t.Name, up...); err != nil {
			return Migrated{}, err
		}

		applied := strings.Join(up, ";\n") + ";"
		id, err := changelog.RecordMigration(tx, by, changelog.Migration{
			Slug: changelog.Slug("alter " + t.Name), Description: "Add columns to " + t.Name, Up: applied, Down: strings.Join(down, ";\n") + ";",
		})
		return Migrated{Success: true, MigrationID: id, AppliedSQL: applied}, err
	})
}

// additions writes the statements that add columns, and those that would drop them.
func (t *Table) additions(add []Column) (up, down []string, err error) {
	taken := t.columnNames()
	for i, c := range add {
		field := fmt.Sprintf("add_columns[%d]", i)
		if err := sqltext.CheckColumn(field+".name", c.Name); err != nil {
			return nil, nil, err
		}

		if sqltext.ContainsFold(taken, c.Name) {
			bad := dberr.Invalid(field+".name", "the table %s already has a column %s", t.Name, c.Name)
			// The same call cannot succeed later.
			bad.Retryable = false
			return nil, nil, bad
		}

		if c.PrimaryKey {
			return nil, nil, dberr.Invalid(field+".primary_key", "a column that is added cannot be the primary key; make a new table and copy the rows")
		}

		taken = append(taken, c.Name)
		def, _, err := c.definition(field, false, false)
		if err != nil {
			return nil, nil, err
		}
		if strings.Contains(def, " DEFAULT CURRENT_") {
			return nil, nil, dberr.Invalid(field+".default", "a column that is added needs a default that is always the same, and %s is not; leave the default out and set the column in the rows", c.Default)
		}

		// SQLite refuses NOT NULL without a default even for an empty table.
		if c.Nullable != nil && !*c.Nullable && !strings.Contains(def, " DEFAULT ") {
			typ, err := c.columnType(field)
			if err != nil {
				return nil, nil, err
			}
			def += " DEFAULT " + emptyValue(typ)
		}

		up = append(up, "ALTER TABLE "+sqltext.Quote(t.Name)+" ADD COLUMN "+def)
		// Undone in the opposite order.
		down = append([]string{"ALTER TABLE " + sqltext.Quote(t.Name) + " DROP COLUMN " + sqltext.Quote(c.Name)}, down...)
	}

	return up, down, nil
}

func emptyValue(typ string) string {
	switch typ {
	case typeText:
		return "''"
	case typeBlob:
		return "X''"
	}
	return "0"
}
