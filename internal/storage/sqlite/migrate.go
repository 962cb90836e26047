package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strconv"
	"strings"

	"rouse/internal/atomicfile"
)

// Migration is one step forward of a schema.
type Migration struct {
	Version int
	Name    string
	SQL     string
}

// ReadMigrations returns the migrations NNNN_name.sql of a folder in order. Numbers must start at 1
// and have no gaps.
func ReadMigrations(dir fs.FS) ([]Migration, error) {
	names, err := fs.Glob(dir, "*.sql")
	if err != nil {
		return nil, err
	}

	sort.Strings(names)
	var out []Migration
	for i, name := range names {
		number, _, ok := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if !ok || err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s: the name must begin with %04d_", name, i+1)
		}

		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}

		out = append(out, Migration{version, name, string(text)})
	}

	return out, nil
}

// NewerSchema returns the error for a database with a schema newer than this program. The remedy
// completes the sentence "install the newer rouse, or".
func NewerSchema(database string, at, known int, remedy string) error {
	return fmt.Errorf("%s has schema %d, but this rouse supports only schemas up to %d: it was made by a newer rouse, or by an unreleased version before 0.1.0; install the newer rouse, or %s",
		database, at, known, remedy)
}

// NewHome is the NewerSchema remedy for a database in rouse's home folder.
const NewHome = "start with an empty home: set `home:` to a new folder"

// migrate applies the missing migrations, each in its own transaction; a new file gets all of them
// in one. It makes a backup before it changes an existing schema, and fails if the schema is newer
// than the program.
func migrate(ctx context.Context, db *sql.DB, o Options) error {
	if o.Migrations == nil {
		return nil
	}

	steps, err := ReadMigrations(o.Migrations)
	if err != nil {
		return err
	}

	var at int
	if err := db.QueryRowContext(ctx, "pragma user_version").Scan(&at); err != nil {
		return openError(o.Path, err)
	}
	if at > len(steps) {
		return NewerSchema("the database "+o.Path, at, len(steps), NewHome)
	}

	if at > 0 && at < len(steps) {
		// A new file needs neither BeforeWrite nor a backup.
		if err := o.BeforeWrite(); err != nil {
			return err
		}
		if err := backup(ctx, db, o, at); err != nil {
			return fmt.Errorf("cannot back up %s before bringing it to schema %d, so it was left as it is: %w", o.Path, len(steps), err)
		}
	}

	// Apply all in one transaction, so that a killed process does not leave a partial schema.
	if at == 0 {
		return apply(ctx, db, o, steps...)
	}

	for _, m := range steps[at:] {
		if err := apply(ctx, db, o, m); err != nil {
			return err
		}
	}

	return nil
}

// backup writes a consistent copy, including the log. It verifies the copy before it renames it to
// the final path.
func backup(ctx context.Context, db *sql.DB, o Options, at int) error {
	path := fmt.Sprintf("%s.bak-%d", o.Path, at)
	if o.BackupPath != nil {
		var err error
		if path, err = o.BackupPath(at); err != nil || path == "" {
			return err
		}
	}

	partial := path + ".partial"
	if err := copyDB(ctx, db, o.Path, partial, nil); err != nil {
		return err
	}
	// Verify the copy: a backup that cannot be read is useless.
	if err := Verify(ctx, partial, o.ApplicationID, false); err != nil {
		return errors.Join(err, os.Remove(partial))
	}

	return atomicfile.Rename(partial, path)
}

// apply runs migrations in one transaction.
func apply(ctx context.Context, db *sql.DB, o Options, steps ...Migration) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()

	for _, m := range steps {
		if _, err := tx.ExecContext(ctx, m.SQL); err != nil {
			return fmt.Errorf("migration %s of %s: %w", m.Name, o.Path, err)
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("pragma user_version=%d", m.Version)); err != nil {
			return err
		}
	}

	return tx.Commit()
}
