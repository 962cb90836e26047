package schema

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

// Created is the result of CreateTable.
type Created struct {
	Success     bool     `json:"success"`
	Existed     bool     `json:"existed,omitempty"`      // the table already existed and the fields below are empty
	MigrationID int64    `json:"migration_id,omitempty"` // number of the migration file
	AppliedSQL  string   `json:"applied_sql,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
}

// CreateTable creates a table inside a write. statements is the result of spec.Statements.
func CreateTable(ctx context.Context, tx *sqlite.Tx, by changelog.By, spec TableSpec, statements []string) (Created, error) {
	if spec.IfNotExists {
		existing, err := ReadTables(ctx, sqlite.Prepared{Tx: tx}, spec.Name)
		if err != nil {
			return Created{}, err
		}
		if len(existing) > 0 {
			return Created{Success: true, Existed: true, Warnings: spec.differences(existing[0])}, nil
		}
	}

	if err := ViewFree(tx, spec.Name); err != nil {
		return Created{}, err
	}
	if err := NameFree(tx, "name", spec.Name); err != nil {
		return Created{}, err
	}

	for i, index := range spec.Indexes {
		if err := NameFree(tx, fmt.Sprintf("indexes[%d].name", i), index.Name); err != nil {
			return Created{}, err
		}
	}

	at := sqlvalue.Now()
	// There may be an old entry for a dropped table of the same name.
	if _, err := tx.Exec(`insert into _tables_meta(name, purpose, created_at, run_id) values (?, ?, ?, ?)
		on conflict(name) do update set purpose = excluded.purpose, created_at = excluded.created_at, run_id = excluded.run_id`,
		spec.Name, strings.TrimSpace(spec.Purpose), at, by.Run); err != nil {
		return Created{}, err
	}

	if err := ApplySchema(ctx, tx, by, at, spec.Name, statements...); err != nil {
		return Created{}, err
	}

	created := Created{Success: true, AppliedSQL: strings.Join(statements, ";\n") + ";"}
	var err error
	created.MigrationID, err = changelog.RecordMigration(tx, by, changelog.Migration{
		Slug: changelog.Slug("create " + spec.Name), Description: "Create " + spec.Name + ": " + spec.Purpose, Up: created.AppliedSQL, Down: "DROP TABLE " + sqltext.Quote(spec.Name) + ";",
	})

	return created, err
}

// NameFree returns an error if a name is taken. Tables, views and indexes share one namespace.
func NameFree(tx *sqlite.Tx, field, name string) error {
	var kind, owner string
	row := tx.QueryRow(`select coalesce(max(type), ''), coalesce(max(tbl_name), '') from sqlite_schema where name = ? collate nocase and type <> 'trigger'`, name)
	if err := row.Scan(&kind, &owner); err != nil {
		return err
	}
	if kind == "" {
		return nil
	}

	bad := dberr.Invalid(field, "a %s named %s already exists", kind, name)
	if kind == "index" {
		bad.Message += " on the table " + owner
	}

	bad.Retryable = false // the same call cannot succeed later
	return bad
}

// ViewFree returns an error if there is a saved view with the name of a new table.
func ViewFree(tx *sqlite.Tx, name string) error {
	var taken bool
	if err := tx.QueryRow(`select exists (select 1 from _views where name = ?)`, name).Scan(&taken); err != nil || !taken {
		return err
	}
	bad := dberr.Invalid("name", "a saved view named %s already exists; choose another name, or drop the view with db_drop_view", name)
	bad.Retryable = false
	return bad
}

// ApplySchema runs statements that change the schema and logs them as one change.
func ApplySchema(ctx context.Context, tx *sqlite.Tx, by changelog.By, at, table string, statements ...string) error {
	ctx = tx.Context(ctx)
	err := changelog.ChangeSchema(ctx, tx, by, at, table, func() (string, error) {
		for _, statement := range statements {
			if _, err := tx.SQL().ExecContext(ctx, statement); err != nil {
				return "", err
			}
		}
		return strings.Join(statements, ";\n") + ";", nil
	})

	return err
}
