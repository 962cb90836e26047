package agentdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/internal/atomicfile"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

// MigrateSpec changes the schema, and says how that would be undone.
type MigrateSpec struct {
	Up, Down    string // SQL; Up runs in one transaction, Down is only kept
	Description string
}

// Migrated is the result of Migrate and AlterTable.
type Migrated struct {
	Success     bool     `json:"success"`
	MigrationID int64    `json:"migration_id"`
	AppliedSQL  string   `json:"applied_sql"`
	Warnings    []string `json:"warnings,omitempty"`
}

// Migrate runs SQL as Execute does and records it as a migration (OSA-53).
func (db *DB) Migrate(ctx context.Context, by changelog.By, spec MigrateSpec) (Migrated, error) {
	if strings.TrimSpace(spec.Description) == "" {
		return Migrated{}, dberr.Invalid("description", "say in a few words what the migration is for; its file is named after them")
	}

	s, err := newScript(spec.Up)
	if err != nil {
		return Migrated{}, inField("up_sql", err)
	}
	if strings.TrimSpace(spec.Down) == "" {
		return Migrated{}, dberr.Invalid("down_sql", "give the SQL that would undo the migration; it is stored, not run")
	}
	if _, err := sqltext.SplitScript(spec.Down); err != nil {
		return Migrated{}, inField("down_sql", err)
	}

	// The changelog tells migrations from what the agent does otherwise.
	by.Actor = changelog.ActorMigration
	done, err := withBackup(ctx, db, by, func() (Migrated, error) {
		return confined(ctx, db, by, "migrate", func(ctx context.Context, tx *sqlite.Tx) (Migrated, error) {
			if err := db.runScript(ctx, tx, by, s); err != nil {
				return Migrated{}, err
			}
			id, err := changelog.RecordMigration(tx, by, changelog.Migration{Slug: changelog.Slug(spec.Description), Description: spec.Description, Up: spec.Up, Down: spec.Down})
			return Migrated{Success: true, MigrationID: id, AppliedSQL: spec.Up}, err
		})
	})
	if err == nil {
		done.Warnings = append(db.quotaWarnings(ctx, done.Warnings), db.migrationFileWarnings(ctx)...)
	}

	return done, inField("up_sql", err)
}

// inField names the argument of the tool in an error about sql or table.
func inField(field string, err error) error {
	var bad *dberr.Error
	if errors.As(err, &bad) && (bad.Field == "sql" || bad.Field == "table") {
		named := *bad
		named.Field = field
		return &named
	}
	return err
}

// migrationFileWarnings writes the files of the migrations, and warns when that fails: the change
// itself stands.
func (db *DB) migrationFileWarnings(ctx context.Context) []string {
	if err := db.writeMigrationFiles(context.WithoutCancel(ctx)); err != nil {
		return []string{"the change is done, but its files beside the database could not be written, which is tried again when the database is next opened: " + err.Error()}
	}
	return nil
}

// writeMigrationFiles brings the files beside the database in step with it: NNNN-slug.sql and
// NNNN-slug.down.sql in migrations, and schema.sql. Only what is committed gets a file.
func (db *DB) writeMigrationFiles(ctx context.Context) error {
	db.filesMu.Lock()
	defer db.filesMu.Unlock()

	dir := filepath.Join(filepath.Dir(db.path), "migrations")
	migrations, err := sqlite.Collect(ctx, db.db.Read(), func(scan sqlite.Scanner) (m changelog.Migration, err error) {
		err = scan(&m.ID, &m.Slug, &m.Description, &m.Up, &m.Down)
		return m, err
	}, `select id, slug, description, up, down from _migrations order by id`)
	if err != nil || len(migrations) == 0 { // a database without migrations gets no folder
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	for _, m := range migrations {
		name := filepath.Join(dir, fmt.Sprintf("%04d-%s", m.ID, m.Slug))
		head := "-- " + text.Collapse(m.Description) + "\n"
		if err := writeOnce(name+".sql", head+m.Up+"\n"); err != nil {
			return err
		}
		if err := writeOnce(name+".down.sql", head+m.Down+"\n"); err != nil {
			return err
		}
	}

	text, err := db.schemaSQL(ctx)
	if err != nil {
		return err
	}

	path := filepath.Join(filepath.Dir(db.path), "schema.sql")
	// This also runs at every opening, mostly without a change.
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}

	return atomicfile.Write(path, []byte(text), 0o600)
}

// schemaSQL is the whole schema as SQL that makes it.
func (db *DB) schemaSQL(ctx context.Context) (string, error) {
	objects, err := sqlite.Collect(ctx, db.db.Read(), func(scan sqlite.Scanner) (out string, err error) {
		var text, purpose string
		err = scan(&text, &purpose)
		if purpose = brief(purpose); purpose != "" {
			out = "-- " + purpose + "\n"
		}
		return "\n" + out + text + ";\n", err
	}, `select m.sql, coalesce(p.purpose, '') from sqlite_schema m left join _tables_meta p on m.type = 'table' and p.name = m.name
		where m.sql is not null and m.name not like 'sqlite\_%' escape '\' and substr(m.tbl_name, 1, 1) <> '_' order by m.rowid`)
	const head = "-- The agent's tables as they are now. Written by rouse after each change; changing this file changes nothing.\n"
	return head + strings.Join(objects, ""), err
}

// writeOnce writes a file that never changes.
func writeOnce(path, text string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.Write(path, []byte(text), 0o600)
}
