package bench

import (
	"context"
	"database/sql"
	rows "encoding/csv" // the tests have a csv of their own
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"rouse/agentdb/sqlite"
)

const bareRows = 1000 // of a statement

// bareDSN is as durable as an agent's database.
const bareDSN = "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"

func openBare(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", path+bareDSN)
	if err != nil {
		return nil, err
	}

	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(ctx, "create table if not exists t(id integer primary key, name text, n integer)")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// bareLoad writes the file's rows with the statements that an import uses, and nothing
// else: no types to find, no host columns, no changelog.
func bareLoad(ctx context.Context, path, file string) (float64, error) {
	db, err := sqlite.Open(ctx, sqlite.Options{Path: path, ApplicationID: 1})
	if err != nil {
		return 0, err
	}
	defer db.Close()

	begin := time.Now()
	err = db.Do(ctx, func(tx *sqlite.Tx) error {
		var pages int // the log is copied into the file later, as it is after an import
		if err := tx.QueryRow("pragma wal_autocheckpoint=0").Scan(&pages); err != nil {
			return err
		}
		if _, err := tx.Exec("create table t(a text, b integer, c real, d text, e text)"); err != nil {
			return err
		}
		return loadBare(ctx, tx, file)
	})

	return time.Since(begin).Seconds(), err
}

func loadBare(ctx context.Context, tx *sqlite.Tx, file string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	chunks, over := make(chan []any, 4), make(chan error, 1)
	go func() {
		defer close(chunks)
		over <- parseBare(ctx, file, chunks)
	}()
	var statement *sqlite.Prepared
	size := 0
	for args := range chunks {
		// Only the last statement is shorter, so two are prepared in all.
		if len(args) != size {
			if statement != nil {
				if err := statement.Close(); err != nil {
					return err
				}
			}

			var err error
			if statement, err = tx.Prepare("insert into t values (?,?,?,?,?)" + strings.Repeat(",(?,?,?,?,?)", len(args)/5-1)); err != nil {
				return err
			}

			size = len(args)
		}
		if _, err := statement.Exec(args); err != nil {
			return errors.Join(err, statement.Close())
		}
	}
	if statement == nil {
		return <-over
	}

	return errors.Join(<-over, statement.Close())
}

func parseBare(ctx context.Context, file string, to chan<- []any) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()

	r := rows.NewReader(f)
	if _, err := r.Read(); err != nil {
		return err
	}

	var args []any
	for {
		record, err := r.Read()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}

		if len(args) == 5*bareRows || err != nil && len(args) > 0 {
			select {
			case to <- args:
			case <-ctx.Done():
				return ctx.Err()
			}
			args = make([]any, 0, 5*bareRows)
		}

		if err != nil {
			return nil
		}

		n, err := strconv.ParseInt(record[1], 10, 64)
		if err != nil {
			return err
		}

		x, err := strconv.ParseFloat(record[2], 64)
		if err != nil {
			return err
		}

		args = append(args, record[0], n, x, record[3], record[4])
	}
}

// bareInserts writes rows by so many statements, each in a transaction of its own.
func bareInserts(ctx context.Context, path string, calls, rows int) (float64, error) {
	db, err := openBare(ctx, path)
	if err != nil {
		return 0, err
	}
	defer db.Close()

	statement, err := db.PrepareContext(ctx, "insert into t(name, n) values (?,?)"+strings.Repeat(",(?,?)", rows-1))
	if err != nil {
		return 0, err
	}
	defer statement.Close()

	var args []any
	for i := range rows {
		args = append(args, fmt.Sprintf("some name %d", i), i)
	}

	begin := time.Now()
	for range calls {
		if _, err := statement.ExecContext(ctx, args...); err != nil {
			return 0, err
		}
	}

	return float64(calls*rows) / time.Since(begin).Seconds(), nil
}

func bareReads(ctx context.Context, path string, reads int) (float64, error) {
	db, err := openBare(ctx, path)
	if err != nil {
		return 0, err
	}
	defer db.Close()

	statement, err := db.PrepareContext(ctx, "select name, n from t where id = ?")
	if err != nil {
		return 0, err
	}
	defer statement.Close()

	begin := time.Now()
	for i := range reads {
		var name string
		var n int
		if err := statement.QueryRowContext(ctx, i+1).Scan(&name, &n); err != nil {
			return 0, err
		}
	}

	return float64(reads) / time.Since(begin).Seconds(), nil
}

// bareVisits makes a file with a table and a row for each agent, and keeps all of them
// open, as a program without a pool does.
func bareVisits(ctx context.Context, dir string, agents int) (millis, memory float64, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, 0, err
	}

	var open []*sql.DB
	defer func() {
		for _, db := range open {
			err = errors.Join(err, db.Close())
		}
	}()

	before := residentBytes()
	begin := time.Now()

	for i := range agents {
		db, err := openBare(ctx, filepath.Join(dir, fmt.Sprint(i, ".db")))
		if err != nil {
			return 0, 0, err
		}

		open = append(open, db)
		if _, err := db.ExecContext(ctx, "insert into t(name, n) values ('x', 1)"); err != nil {
			return 0, 0, err
		}
	}

	millis = time.Since(begin).Seconds() * 1000 / float64(agents)
	return millis, float64(residentBytes()-before) / (1 << 20), nil
}

// residentBytes is the memory of this process that the system has given it and the
// collector does not hold back. It is 0 where the system does not tell.
func residentBytes() int64 {
	runtime.GC()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}

	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}

	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}

	return pages * int64(os.Getpagesize())
}
