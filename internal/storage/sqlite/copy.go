package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	msqlite "modernc.org/sqlite"
)

// copyStep is the number of pages copied between two checks of the context (1 MiB with 4 KiB
// pages). Larger steps are not faster.
const copyStep = 256

// copyOpen copies the snapshot of the connection's open transaction to the file to. The copy is
// durable when copyOpen returns. An unfinished file is removed.
func copyOpen(ctx context.Context, conn *sql.Conn, to string, progress func(done, of int)) (err error) {
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make the copy: %w", err)
	}

	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(to)
		}
	}()

	if err := copyPages(ctx, conn, to, progress); err != nil {
		return copyError(to, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("cannot make the copy %s durable: %w", to, err)
	}

	return nil
}

// CopyFile copies a database and its log. The database must not be open in any process.
func CopyFile(ctx context.Context, from, to string) (err error) {
	db, err := OpenReadOnly(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return copyDB(ctx, db, from, to, nil)
}

func copyPages(ctx context.Context, conn *sql.Conn, to string, progress func(done, of int)) error {
	return conn.Raw(func(c any) (err error) {
		source, ok := c.(interface {
			NewBackup(to string) (*msqlite.Backup, error)
		})
		if !ok {
			return errors.New("the SQLite driver cannot copy a database")
		}

		// An unfinished copy is removed, so it needs no journal.
		b, err := source.NewBackup(dsn(to, "_pragma=journal_mode(off)", "_pragma=synchronous(off)"))
		if err != nil {
			return err
		}

		defer func() {
			if e := b.Finish(); err == nil { // after a failed step, Finish returns the same error again
				err = e
			}
		}()

		for more := true; more; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if more, err = b.Step(copyStep); err != nil {
				return err
			}

			if progress != nil {
				progress(b.PageCount()-b.Remaining(), b.PageCount())
			}
		}

		return nil
	})
}

// Copy writes the current state of the database to a new file. The copy is durable when Copy
// returns. Writes may continue during the copy. progress receives page counts; it is optional.
func (db *DB) Copy(ctx context.Context, to string, progress func(done, of int)) error {
	return copyDB(ctx, db.read, db.path, to, progress)
}

func copyDB(ctx context.Context, db *sql.DB, from, to string, progress func(done, of int)) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()

	// The open read transaction holds the snapshot. Without it, each write by another connection
	// would restart the copy.
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // read-only

	var pages int
	if err := tx.QueryRowContext(ctx, "pragma page_count").Scan(&pages); err != nil {
		return openError(from, err)
	}
	err = copyOpen(ctx, conn, to, progress)
	if isCorrupt(err) {
		return openError(from, err)
	}
	return err
}
