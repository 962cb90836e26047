package schema

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"rouse/agentdb/changelog"
	"rouse/internal/atomicfile"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

// Files writes the files beside a database that show its migrations and its schema.
type Files struct {
	path string // path of the database
	db   *sqlite.DB
	mu   sync.Mutex // held while the files are written
}

// NewFiles returns the Files of the database at path.
func NewFiles(path string, db *sqlite.DB) *Files {
	return &Files{path: path, db: db}
}

// Warnings writes the files and returns a warning if that fails. The schema change remains in
// effect.
func (f *Files) Warnings(ctx context.Context) []string {
	if err := f.Write(context.WithoutCancel(ctx)); err != nil {
		return []string{"the change is done, but its files beside the database could not be written, which is tried again when the database is next opened: " + err.Error()}
	}
	return nil
}

// Write updates the files beside the database: NNNN-slug.sql and NNNN-slug.down.sql in
// migrations, and schema.sql. It writes only committed migrations.
func (f *Files) Write(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	dir := filepath.Join(filepath.Dir(f.path), "migrations")
	migrations, err := sqlite.Collect(ctx, f.db.Read(), func(scan sqlite.Scanner) (m changelog.Migration, err error) {
		err = scan(&m.ID, &m.Slug, &m.Description, &m.Up, &m.Down)
		return m, err
	}, `select id, slug, description, up, down from _migrations order by id`)
	if err != nil || len(migrations) == 0 { // no folder without migrations
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

	text, err := schemaSQL(ctx, f.db.Read())
	if err != nil {
		return err
	}

	path := filepath.Join(filepath.Dir(f.path), "schema.sql")
	// Write also runs at every opening, usually without a change.
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}

	return atomicfile.Write(path, []byte(text), 0o600)
}

// schemaSQL returns the SQL that creates the whole schema.
func schemaSQL(ctx context.Context, q sqlite.Querier) (string, error) {
	objects, err := sqlite.Collect(ctx, q, func(scan sqlite.Scanner) (out string, err error) {
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

// writeOnce writes a file unless it exists already.
func writeOnce(path, text string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.Write(path, []byte(text), 0o600)
}
