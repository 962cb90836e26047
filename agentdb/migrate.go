package agentdb

import (
	"context"
	"errors"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/internal/storage/sqlite"
)

// MigrateSpec is a schema change together with its inverse.
type MigrateSpec struct {
	Up, Down    string // Up runs in one transaction; Down is only stored
	Description string
}

// Migrate runs SQL like Execute and records it as a migration.
func (db *DB) Migrate(ctx context.Context, by changelog.By, spec MigrateSpec) (schema.Migrated, error) {
	if strings.TrimSpace(spec.Description) == "" {
		return schema.Migrated{}, dberr.Invalid("description", "say in a few words what the migration is for; its file is named after them")
	}

	s, err := newScript(spec.Up)
	if err != nil {
		return schema.Migrated{}, inField("up_sql", err)
	}
	if strings.TrimSpace(spec.Down) == "" {
		return schema.Migrated{}, dberr.Invalid("down_sql", "give the SQL that would undo the migration; it is stored, not run")
	}
	if _, err := sqltext.SplitScript(spec.Down); err != nil {
		return schema.Migrated{}, inField("down_sql", err)
	}

	// The changelog marks migrations with their own actor.
	by.Actor = changelog.ActorMigration
	done, err := withBackup(ctx, db, by, func() (schema.Migrated, error) {
		return confined(ctx, db, by, "migrate", func(ctx context.Context, tx *sqlite.Tx) (schema.Migrated, error) {
			if err := runScript(ctx, tx, by, s); err != nil {
				return schema.Migrated{}, err
			}
			id, err := changelog.RecordMigration(tx, by, changelog.Migration{Slug: changelog.Slug(spec.Description), Description: spec.Description, Up: spec.Up, Down: spec.Down})
			return schema.Migrated{Success: true, MigrationID: id, AppliedSQL: spec.Up}, err
		})
	})
	if err == nil {
		done.Warnings = append(db.Quota.warnings(ctx, done.Warnings), db.files.Warnings(ctx)...)
	}

	return done, inField("up_sql", err)
}

// inField replaces the field name in an error about sql or table with the name of the tool's
// argument.
func inField(field string, err error) error {
	var bad *dberr.Error
	if errors.As(err, &bad) && (bad.Field == "sql" || bad.Field == "table") {
		named := *bad
		named.Field = field
		return &named
	}
	return err
}
