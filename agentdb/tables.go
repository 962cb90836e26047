package agentdb

import (
	"context"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// CreateTable creates a table with the host's columns, and its indexes. If IfNotExists is set, an
// existing table is unchanged. A warning then lists its differences from spec.
func (db *DB) CreateTable(ctx context.Context, by changelog.By, spec schema.TableSpec) (schema.Created, error) {
	statements, err := spec.Statements()
	if err != nil {
		return schema.Created{}, err
	}

	created, err := write(ctx, db, by, "create_table", func(ctx context.Context, tx *sqlite.Tx) (schema.Created, error) {
		return schema.CreateTable(ctx, tx, by, spec, statements)
	})
	if err == nil && !created.Existed {
		created.Warnings = append(db.Quota.warnings(ctx, created.Warnings), db.files.Warnings(ctx)...)
	}
	return created, err
}

// AlterTable adds columns to a table. If a column is NOT NULL and has no default, existing rows
// get zero, an empty text or an empty BLOB.
func (db *DB) AlterTable(ctx context.Context, by changelog.By, table string, add []schema.Column) (schema.Migrated, error) {
	if len(add) == 0 {
		return schema.Migrated{}, dberr.Invalid("add_columns", "name at least one column to add")
	}

	done, err := withBackup(ctx, db, by, func() (schema.Migrated, error) { return alterTable(ctx, db, by, table, add) })
	if err == nil {
		done.Warnings = append(db.Quota.warnings(ctx, done.Warnings), db.files.Warnings(ctx)...)
	}
	return done, err
}

func alterTable(ctx context.Context, db *DB, by changelog.By, table string, add []schema.Column) (schema.Migrated, error) {
	return confined(ctx, db, by, "alter_table", func(ctx context.Context, tx *sqlite.Tx) (schema.Migrated, error) {
		t, err := schema.NeedTable(ctx, sqlite.Prepared{Tx: tx}, table)
		if err != nil {
			return schema.Migrated{}, inField("name", err)
		}

		up, down, err := t.Additions(add)
		if err != nil {
			return schema.Migrated{}, err
		}
		if err := schema.ApplySchema(ctx, tx, by, sqlvalue.Now(), t.Name, up...); err != nil {
			return schema.Migrated{}, err
		}

		applied := strings.Join(up, ";\n") + ";"
		id, err := changelog.RecordMigration(tx, by, changelog.Migration{
			Slug: changelog.Slug("alter " + t.Name), Description: "Add columns to " + t.Name, Up: applied, Down: strings.Join(down, ";\n") + ";",
		})
		return schema.Migrated{Success: true, MigrationID: id, AppliedSQL: applied}, err
	})
}
