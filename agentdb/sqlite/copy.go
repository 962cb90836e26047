package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	msqlite "modernc.org/sqlite"
)

// copyStep is how many pages are copied between two looks at the context: 1 MiB of pages
// of 4 KiB. Larger steps are no faster.
const copyStep = 256

// Copy writes the database of a connection as it is at this instant to a new file, which
// is durable when it returns. Others write meanwhile: a snapshot is read, page by page.
// progress, which may be nil, hears of pages. A file that is not finished is removed.
func Copy(ctx context.Context, conn *sql.Conn, to string, progress func(done, of int)) (err error) {
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
		return copyFault(to, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("cannot make the copy %s durable: %w", to, err)
	}

	return nil
}

// CopyFile copies a database that nobody has open, with what is in its log.
func CopyFile(ctx context.Context, from, to string) (err error) {
	db, err := Look(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return copyOf(ctx, db, from, to, nil)
}

func copyPages(ctx context.Context, conn *sql.Conn, to string, progress func(done, of int)) error {
	// An open read transaction holds the snapshot; without it each write by another
	// connection would begin the copy anew.
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it only read

	var pages int
	if err := tx.QueryRowContext(ctx, "pragma page_count").Scan(&pages); err != nil {
		return err
	}

	return conn.Raw(func(c any) (err error) {
		source, ok := c.(interface {
			NewBackup(to string) (*msqlite.Backup, error)
		})
		if !ok {
			return errors.New("the SQLite driver cannot copy a database")
		}

		// What is not finished is thrown away, so the copy needs no journal of its own.
		b, err := source.NewBackup(dsn(to, "_pragma=journal_mode(off)", "_pragma=synchronous(off)"))
		if err != nil {
			return err
		}

		defer func() {
			if e := b.Finish(); err == nil { // after a step that failed it says the same again
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

func copyFault(to string, err error) error {
	const full, ioerr = 13, 10
	var e *msqlite.Error
	if errors.As(err, &e) && (e.Code()&0xff == full || e.Code()&0xff == ioerr) {
		return fmt.Errorf("the copy does not fit, or its disk fails: %s; free some space there, or name another place: %w", filepath.Dir(to), err)
	}
	return fmt.Errorf("cannot copy the database to %s: %w", to, err)
}

// Look opens a database that nobody has open, for reading alone. A log beside it is taken
// into account. The caller closes it.
func Look(path string) (*sql.DB, error) {
	empty, err := probe(path)
	if err != nil {
		return nil, err
	}

	if empty {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("there is no database %s: %w", path, err)
		}
		return nil, &CorruptError{path, "it is empty"}
	}

	params := []string{"mode=ro", "_pragma=cell_size_check(1)", "_pragma=query_only(1)"}
	if _, err := os.Stat(path + "-wal"); err != nil {
		params = append(params, "immutable=1") // SQLite would make files beside it
	}

	db := sql.OpenDB(connector{&msqlite.Driver{}, dsn(path, params...)})
	db.SetMaxOpenConns(1)
	return db, nil
}

// Verify says whether a file is a whole database with the application id; if it is not,
// with a *CorruptError. thorough looks also whether every index agrees with its table,
// which takes about three times as long.
func Verify(ctx context.Context, path string, applicationID int32, thorough bool) (err error) {
	db, err := Look(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	if err := identify(ctx, db, path, applicationID); err != nil {
		return err
	}
	return check(ctx, db, path, thorough)
}

// identify looks at the mark that says whose file it is.
func identify(ctx context.Context, db *sql.DB, path string, want int32) error {
	var id int32
	if err := db.QueryRowContext(ctx, "pragma application_id").Scan(&id); err != nil {
		return damage(path, err)
	}
	if id != want {
		return &CorruptError{path, fmt.Sprintf("it belongs to another program (application id %#x, not %#x)", id, want)}
	}
	return nil
}

// check reads the whole file.
func check(ctx context.Context, db *sql.DB, path string, thorough bool) error {
	pragma := "pragma quick_check(1)"
	if thorough {
		pragma = "pragma integrity_check(1)"
	}

	var verdict string
	if err := db.QueryRowContext(ctx, pragma).Scan(&verdict); err != nil {
		return damage(path, err)
	}
	if verdict != "ok" {
		return &CorruptError{path, "it is damaged: " + verdict}
	}

	return nil
}

// Check reads the whole file of an open database; a *CorruptError says what is wrong.
func (db *DB) Check(ctx context.Context) error { return check(ctx, db.read, db.path, false) }

// Copy writes the database as it is now to a new file; see the function Copy.
func (db *DB) Copy(ctx context.Context, to string, progress func(done, of int)) error {
	return copyOf(ctx, db.read, db.path, to, progress)
}

func copyOf(ctx context.Context, db *sql.DB, from, to string, progress func(done, of int)) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()

	err = Copy(ctx, conn, to, progress)
	if isCorrupt(err) {
		return damage(from, err)
	}
	return err
}
