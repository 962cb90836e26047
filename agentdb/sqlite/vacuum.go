package sqlite

import (
	"context"
	"database/sql"
	"errors"

	msqlite "modernc.org/sqlite"
)

// Vacuum writes the file again, without its free space, and has it give space back in steps from then
// on. Nobody writes meanwhile.
func (db *DB) Vacuum(ctx context.Context) error {
	return db.writer.DoExclusive(ctx, func() (err error) {
		// The writer's own connection is in use as long as the writer is.
		own := sql.OpenDB(connector{&msqlite.Driver{}, dsn(db.path, existing)})
		own.SetMaxOpenConns(1)
		defer func() { err = errors.Join(err, own.Close()) }()

		for _, statement := range []string{"pragma auto_vacuum=incremental", "vacuum"} {
			if _, err := own.ExecContext(ctx, statement); err != nil {
				return openError(db.path, err)
			}
		}
		return nil
	})
}
