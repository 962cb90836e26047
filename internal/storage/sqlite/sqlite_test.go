package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"rouse/internal/storage/sqlite"
)

const testID = 0x7465_7374

var schema = fstest.MapFS{"0001_first.sql": {Data: []byte(`create table t(id integer primary key, v text not null);`)}}

func open(t *testing.T, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: testID, Migrations: schema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func insert(v string) func(*sqlite.Tx) error {
	return func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`insert into t(v) values ($1)`, v)
		return err
	}
}

func count(t *testing.T, db *sqlite.DB) int {
	t.Helper()
	var n int
	if err := db.Read().QueryRowContext(t.Context(), `select count(*) from t`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Characters with a meaning in URIs do not change the path.
func TestOpenKeepsThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b%20?x#y", "é.db")
	if strings.ContainsAny(string(filepath.Separator), `\`) {
		t.Skip("Windows does not allow such names")
	}

	db := open(t, path)
	if err := db.Do(t.Context(), insert("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the database is not where it should be: %v", err)
	}
}

func TestFailingOperationIsIsolated(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "t.db"))
	const callers = 64
	errs := make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			errs[i] = db.Do(t.Context(), func(tx *sqlite.Tx) error {
				if err := insert(fmt.Sprint(i))(tx); err != nil {
					return err
				}

				switch i % 4 {
				case 1:
					return errors.New("mine alone")
				case 2:
					panic("mine alone too")
				case 3:
					_, err := tx.Exec(`insert into t(id, v) values (1, null)`)
					return err
				}

				return nil
			})
		})
	}

	all.Wait()
	for i, err := range errs {
		if (err == nil) != (i%4 == 0) {
			t.Errorf("operation %d: %v", i, err)
		}
	}

	if n := count(t, db); n != callers/4 {
		t.Errorf("%d rows, want %d", n, callers/4)
	}
}

// SQLite itself rolls back a transaction when the disk is full. The caller gets SQLite's message,
// and the writer works for the next write.
func TestFullDisk(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "t.db"))
	limit := func(pages int) func(*sqlite.Tx) error {
		return func(tx *sqlite.Tx) error {
			var now int
			return tx.QueryRow(fmt.Sprintf("pragma max_page_count=%d", pages)).Scan(&now)
		}
	}
	if err := db.Do(t.Context(), limit(1)); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := db.Do(t.Context(), insert(strings.Repeat("x", 1<<20))); err == nil || !strings.Contains(err.Error(), "full") || strings.Contains(err.Error(), "rollback") {
			t.Errorf("error %v", err)
		}
	}

	if err := db.Do(t.Context(), limit(1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := db.Do(t.Context(), insert("y")); err != nil || count(t, db) != 1 {
		t.Errorf("after it: %v, %d rows", err, count(t, db))
	}
}

// A failed commit fails all operations in it, but no later operation.
func TestCommitThatFails(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "t.db"))
	later := func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(`create table if not exists parts(of integer references t deferrable initially deferred)`); err != nil {
			return err
		}
		_, err := tx.Exec(`insert into parts values (99)`) // checked by the commit
		return err
	}
	if err := db.Do(t.Context(), later); err == nil || !strings.Contains(err.Error(), "whether it was written is unknown") {
		t.Errorf("got %v", err)
	}

	for range 2 {
		if err := db.Do(t.Context(), insert("x")); err != nil {
			t.Error(err)
		}
	}

	if n := count(t, db); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

func TestCancelledCallerIsNotRun(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "t.db"))
	hold, held := make(chan struct{}), make(chan struct{})
	go db.Do(context.WithoutCancel(t.Context()), func(*sqlite.Tx) error { close(held); <-hold; return nil })
	<-held
	ctx, cancel := context.WithCancelCause(t.Context())
	answer := make(chan error)
	go func() { answer <- db.Do(ctx, insert("x")) }()
	why := errors.New("left")
	cancel(why)
	if err := <-answer; !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}

	close(hold)
	if err := db.Do(t.Context(), insert("y")); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db); n != 1 {
		t.Errorf("%d rows, want only the second", n)
	}
}

func TestClosedWriter(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "t.db"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Do(t.Context(), insert("x")); !errors.Is(err, sqlite.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// A damaged or foreign database is refused and left unchanged.
func TestOpenRefuses(t *testing.T) {
	cases := map[string]struct {
		make func(t *testing.T, path string)
		say  string
	}{
		"text":    {func(t *testing.T, p string) { write(t, p, strings.Repeat("not a database\n", 500)) }, "damaged or not a database"},
		"foreign": {func(t *testing.T, p string) { make4(t, p, 0x1234) }, "another program"},
		"folder": {func(t *testing.T, p string) {
			if err := os.Mkdir(p, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "folder"},
		// Most other programs' databases have no application id and no write-ahead log.
		"unmarked":      {func(t *testing.T, p string) { raw(t, p, `create table theirs(x); insert into theirs values (1)`) }, "another program"},
		"one byte":      {func(t *testing.T, p string) { make4(t, p, testID); cut(t, p, 1) }, "does not begin like one"},
		"half a header": {func(t *testing.T, p string) { make4(t, p, testID); cut(t, p, 50) }, "damaged"},
		"half":          {func(t *testing.T, p string) { make4(t, p, testID); cut(t, p, 9000) }, "damaged"},
		"its last page missing": {func(t *testing.T, p string) {
			make4(t, p, testID)
			info, err := os.Stat(p)
			if err != nil {
				t.Fatal(err)
			}
			cut(t, p, info.Size()-4096)
		}, "damaged"},
		"zeros": {func(t *testing.T, p string) { write(t, p, strings.Repeat("\x00", 8192)) }, "does not begin like one"},
		"marked by nobody": {func(t *testing.T, p string) {
			make4(t, p, testID)
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()

			if _, err := f.WriteAt(make([]byte, 4), 68); err != nil { // offset of the application id
				t.Fatal(err)
			}
		}, "another program"},
		"emptied": {func(t *testing.T, p string) { write(t, p, ""); write(t, p+"-wal", "frames") }, "write-ahead log"},
		"torn page": {func(t *testing.T, p string) {
			make4(t, p, testID)
			text, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}

			for i := 4096; i < len(text); i++ {
				text[i] = 0xff
			}

			write(t, p, string(text))
		}, "damaged"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.db")
			c.make(t, path)
			before, _ := os.ReadFile(path)
			_, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: testID, Migrations: schema})
			var corrupt *sqlite.CorruptError
			if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), c.say) {
				t.Fatalf("got %v, want a CorruptError that says %q", err, c.say)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the refused file was changed")
			}
		})
	}
}

// A creation that was killed at its first page is repeated.
func TestOpenAfterKilledCreation(t *testing.T) {
	for _, statement := range []string{"pragma journal_mode=wal", "pragma user_version=0"} {
		path := filepath.Join(t.TempDir(), "t.db")
		raw(t, path, statement)
		if err := open(t, path).Do(t.Context(), insert("x")); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// raw runs SQL on a file like another program.
func raw(t *testing.T, path, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// make4 creates a closed database with some rows.
func make4(t *testing.T, path string, id int32) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: id, Migrations: schema})
	if err != nil {
		t.Fatal(err)
	}

	for range 4 {
		if err := db.Do(t.Context(), insert(strings.Repeat("x", 3000))); err != nil {
			t.Fatal(err)
		}
	}

	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// PageSize applies only to a new file, and does not change the size of the log that triggers a
// checkpoint.
func TestPageSize(t *testing.T) {
	for name, c := range map[string]struct {
		made, opened int
		want, pages  int64
	}{
		"small": {1024, 0, 1024, 4000}, "of before": {0, 1024, 4096, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.db")
			for _, size := range []int{c.made, c.opened} {
				db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: testID, Migrations: schema, PageSize: size})
				if err != nil {
					t.Fatal(err)
				}

				var size, pages int64
				err = db.Do(t.Context(), func(tx *sqlite.Tx) error {
					return errors.Join(tx.QueryRow("pragma page_size").Scan(&size), tx.QueryRow("pragma wal_autocheckpoint").Scan(&pages))
				})
				if err != nil || size != c.want || db.PageSize() != c.want || pages != c.pages {
					t.Errorf("pages of %d bytes (%d), the log has %d: %v", size, db.PageSize(), pages, err)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestMigrations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	make4(t, path, testID)
	two := fstest.MapFS{"0001_first.sql": schema["0001_first.sql"], "0002_more.sql": {Data: []byte(`alter table t add column w text;`)}}
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: testID, Migrations: two})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, db); n != 4 {
		t.Errorf("%d rows after the migration", n)
	}

	db.Close()
	if _, err := os.Stat(path + ".bak-1"); err != nil {
		t.Errorf("no backup before the migration: %v", err)
	}
	if _, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: testID, Migrations: schema}); err == nil || !strings.Contains(err.Error(), "newer rouse") {
		t.Errorf("an older program opened a newer database: %v", err)
	}
}

// A failing migration leaves the schema unchanged.
func TestMigrationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	make4(t, path, testID)
	bad := fstest.MapFS{"0001_first.sql": schema["0001_first.sql"], "0002_bad.sql": {Data: []byte(`alter table t add column w text; select * from nowhere;`)}}
	if _, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: testID, Migrations: bad}); err == nil || !strings.Contains(err.Error(), "0002_bad.sql") {
		t.Fatalf("got %v", err)
	}
	if n := count(t, open(t, path)); n != 4 {
		t.Errorf("%d rows", n)
	}
}

func TestGuard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	make4(t, path, testID)
	g, err := sqlite.OpenGuarded(path, sqlite.Guard{
		Setup: []string{`create temp view few as select * from t limit 2`},
		Allow: func(_ sqlite.Action, a1, _, _, _ string) bool { return a1 != "sqlite_master" },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()

	ctx := t.Context()
	conn, err := g.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	var n int
	if err := conn.QueryRowContext(ctx, `select count(*) from few`).Scan(&n); err != nil || n != 2 {
		t.Errorf("few: %d, %v", n, err)
	}

	for _, sql := range []string{
		`insert into t(v) values ('x')`, `attach ':memory:' as m`, `select * from sqlite_master`, `create temp table x(a)`,
		`select zeroblob(100000000)`, `pragma query_only=0; insert into t(v) values ('x')`,
	} {
		var out any
		if err := conn.QueryRowContext(ctx, sql).Scan(&out); err == nil {
			t.Errorf("%s was allowed", sql)
		}
	}
}

func BenchmarkDo(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			db, err := sqlite.Open(b.Context(), sqlite.Options{Path: filepath.Join(b.TempDir(), "t.db"), ApplicationID: testID, Migrations: schema})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()

			work := make(chan struct{}, callers)
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range work {
						if err := db.Do(b.Context(), insert("x")); err != nil {
							b.Error(err)
						}
					}
				})
			}

			for b.Loop() {
				work <- struct{}{}
			}

			close(work)
			all.Wait()
		})
	}
}

// BenchmarkFsync measures a durable write without a database: the baseline of BenchmarkDo.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()

	page := make([]byte, 4096)
	for b.Loop() {
		if _, err := f.Write(page); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

// A pool that reconnects after its file was removed does not create an empty file. SQLite would
// remove the log with it.
func TestConnectingMakesNoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.db")
	db := open(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	// More connections than were ever open at once.
	for range 3 {
		conn, err := db.Read().Conn(t.Context())
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			_, _ = conn.ExecContext(t.Context(), "select count(*) from t") // only the files matter
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a file again: %v", err)
	}
	if _, err := os.Stat(path + "-wal"); err != nil {
		t.Errorf("the log is gone: %v", err)
	}
}
