package db

import (
	"context"
	"fmt"
	"io"
	"strings"

	"rouse/agent/tool"
	"rouse/agentdb"
	"rouse/agentdb/schema"
)

const maxScript = 256 << 10 // bytes of an SQL file

type alterArgs struct {
	Name       string       `json:"name" jsonschema:"of the table"`
	AddColumns []columnArgs `json:"add_columns"`
}

// alterTable returns {success, migration_id, applied_sql}.
func (o Options) alterTable(ctx context.Context, db *agentdb.DB, in tool.Invocation, a alterArgs) (any, []string, error) {
	add, err := columns(a.AddColumns)
	if err != nil {
		return nil, nil, err
	}
	return splitMigrated(db.AlterTable(ctx, by(in), a.Name, add))
}

type migrateArgs struct {
	UpSQL       string `json:"up_sql" jsonschema:"runs now, in one transaction"`
	DownSQL     string `json:"down_sql" jsonschema:"would revert it; it is stored with the other and not run"`
	Description string `json:"description" jsonschema:"a few words: the migration's file is named after them"`
}

func (o Options) migrate(ctx context.Context, db *agentdb.DB, in tool.Invocation, a migrateArgs) (any, []string, error) {
	return splitMigrated(db.Migrate(ctx, by(in), agentdb.MigrateSpec{Up: a.UpSQL, Down: a.DownSQL, Description: a.Description}))
}

// splitMigrated separates the warnings from the result.
func splitMigrated(done schema.Migrated, err error) (any, []string, error) {
	warnings := done.Warnings
	done.Warnings = nil
	return done, warnings, err
}

type executeArgs struct {
	SQL    string      `json:"sql,omitempty"`
	Path   string      `json:"path,omitempty"`
	Params tool.Values `json:"params,omitempty"`
}

// execute returns {rows_affected, warning?, select_rows_drained?}.
func (o Options) execute(ctx context.Context, db *agentdb.DB, in tool.Invocation, a executeArgs) (any, []string, error) {
	if (a.SQL == "") == (a.Path == "") {
		return nil, nil, &agentdb.Error{Kind: string(tool.KindInvalidArgs), Field: "sql", Message: "give exactly one of sql and path", Retryable: true}
	}

	spec := agentdb.ExecuteSpec{SQL: a.SQL, Params: a.Params.List, Named: a.Params.Named}

	if a.Path != "" {
		// A repeated call must not read its file again, which may no longer exist.
		if in.Key != "" {
			if stored, ok, err := db.Replay(ctx, in.Run, in.Key); ok || err != nil {
				return stored, nil, err
			}
		}
		text, err := o.readScript(a.Path)
		if err != nil {
			return nil, nil, err
		}
		spec.SQL = text
	}

	done, err := db.Execute(ctx, by(in), spec)
	warnings := done.Warnings
	done.Warnings = nil
	return done, warnings, err
}

func (o Options) readScript(path string) (string, error) {
	f := &lazyFile{roots: o.Roots, path: path}
	defer f.close()

	// One byte more than allowed shows that the file is too large.
	data, err := io.ReadAll(io.LimitReader(f, maxScript+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxScript {
		return "", &agentdb.Error{Kind: string(tool.KindInvalidArgs), Field: "path", Retryable: true, Message: fmt.Sprintf("%s is larger than the 256 KiB that a file of SQL may have; split it, or bring rows in with db_import", path)}
	}

	// A byte order mark is not SQL.
	text := strings.TrimPrefix(string(data), "\ufeff")
	if strings.TrimSpace(text) == "" {
		return "", &agentdb.Error{Kind: string(tool.KindInvalidArgs), Field: "path", Retryable: true, Message: path + " is empty"}
	}

	return text, nil
}
