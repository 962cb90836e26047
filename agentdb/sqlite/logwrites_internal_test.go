package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"modernc.org/libc"
	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
	"pgregory.net/rapid"

	"rouse/agentdb/sqlite/vfs"
)

// watchedLog counts what is written into the logs of a test, and has the next writes fail.
var watchedLog struct {
	writes, fail atomic.Int64
	plain        atomic.Pointer[sqlite3.Tsqlite3_io_methods]
}

// watchLogs has the writes of all logs that are open counted. Tests that call it do not run beside others.
func watchLogs(t *testing.T) {
	t.Helper()
	openFiles.Lock()
	defer openFiles.Unlock()

	for _, f := range openFiles.byAddress {
		if f.log == nil || f.log.plain.FxWrite == vfs.Function[vfs.WriteFunc](watchedWrite) {
			continue
		}
		beneath := f.log.plain
		watched := *beneath
		watched.FxWrite = vfs.Function[vfs.WriteFunc](watchedWrite)
		watchedLog.plain.Store(beneath)
		f.log.plain = &watched
	}
	watchedLog.writes.Store(0)
}

func watchedWrite(tls *libc.TLS, file, data uintptr, n int32, at int64) int32 {
	if watchedLog.fail.Add(-1) >= 0 {
		return sqlite3.SQLITE_FULL
	}
	watchedLog.writes.Add(1)
	return vfs.Call[vfs.WriteFunc](watchedLog.plain.Load().FxWrite)(tls, file, data, n, at)
}

// A transaction of many pages is written at once, and one of a single page in its two pieces.
func TestLogWritesOfATransaction(t *testing.T) {
	c := logWriter(t, filepath.Join(t.TempDir(), "t.db"))
	do(t, c, "pragma cache_size=1000", "create table t(id integer primary key, v blob not null)", "insert into t values (1, zeroblob(100))")
	watchLogs(t)

	const page = 4096
	for _, test := range []struct {
		pages int
		most  int64
	}{{1, 2}, {8, 1}, {100, 100*(page+frameHeader)/maxHeld + 1}} {
		watchedLog.writes.Store(0)
		do(t, c, fmt.Sprintf("update t set v = zeroblob(%d) where id = 1", test.pages*page-page/2))
		if n := watchedLog.writes.Load(); n == 0 || n > test.most {
			t.Errorf("a row of %d pages took %d writes, want at most %d", test.pages, n, test.most)
		}
	}
}

// A transaction of which one write failed is not there, neither at once nor after a crash, and the next one is.
func TestLogWritesThatFail(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.db")
	c := logWriter(t, path)
	do(t, c, "create table t(id integer primary key, v blob not null)")
	do(t, c, "insert into t values (1, x'01')")
	watchLogs(t)

	for i, large := range []string{"zeroblob(10)", "zeroblob(20000)", "zeroblob(2000000)"} {
		watchedLog.fail.Store(1)
		_, err := c.ExecContext(t.Context(), "insert into t values (2, "+large+")")

		var e *msqlite.Error
		if !errors.As(err, &e) || e.Code()&0xff != sqlite3.SQLITE_FULL {
			t.Fatalf("%s: want the error of a full disk, got %v", large, err)
		}
		want := map[int64]string{1: "1"}
		for j := range i {
			want[int64(10+j)] = "8"
		}
		same(t, "after "+large+" failed", rowsOf(t, c), want)
		same(t, "after a crash once "+large+" had failed", afterCrash(t, path), want)

		do(t, c, fmt.Sprintf("insert into t values (%d, x'0102030405060708')", 10+i))
		want[int64(10+i)] = "8"
		same(t, "after a crash behind the next", afterCrash(t, path), want)
	}
}

// Whatever two connections write, give up in part or as a whole, and read meanwhile: a crash at any time leaves what was committed.
func TestLogWritesProperties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir := t.TempDir()
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "t.db")

		both := []*sql.Conn{logWriter(r, path), logWriter(r, path)}
		for _, c := range both {
			defer c.Close()
			do(r, c, "pragma synchronous="+rapid.SampledFrom([]string{"off", "full"}).Draw(r, "synchronous"))
		}
		do(r, both[0], "create table t(id integer primary key, v blob not null)")

		committed := map[int64]string{}
		for range rapid.IntRange(1, 12).Draw(r, "transactions") {
			writes := rapid.IntRange(0, 1).Draw(r, "connection")
			if got := oneTransaction(r, both[writes], path, committed); got != nil {
				committed = got
			}

			same(r, "the other connection", rowsOf(r, both[1-writes]), committed)
			same(r, "after a crash", afterCrash(r, path), committed)
			if rapid.IntRange(0, 5).Draw(r, "checkpoint") == 0 {
				do(r, both[0], "pragma wal_checkpoint(restart)")
			}
		}
	})
}

// oneTransaction is what one connection does from its begin on; what it has committed, or nil when it gave up.
func oneTransaction(r *rapid.T, c *sql.Conn, path string, before map[int64]string) map[int64]string {
	do(r, c, "begin immediate")
	rows := maps.Clone(before)
	saved := map[int64]string(nil)

	for range rapid.IntRange(1, 10).Draw(r, "statements") {
		id := rapid.Int64Range(1, 6).Draw(r, "row")
		switch rapid.IntRange(0, 7).Draw(r, "statement") {
		case 0, 1, 2, 3:
			size := rapid.IntRange(1, 60_000).Draw(r, "size")
			do(r, c, fmt.Sprintf("insert or replace into t values (%d, zeroblob(%d))", id, size))
			rows[id] = fmt.Sprint(size)
		case 4:
			do(r, c, fmt.Sprintf("delete from t where id = %d", id))
			delete(rows, id)
		case 5:
			if saved == nil {
				do(r, c, "savepoint s")
				saved = maps.Clone(rows)
			} else {
				do(r, c, "rollback to s")
				rows = maps.Clone(saved)
			}
		case 6:
			same(r, "within a transaction", rowsOf(r, c), rows)
		case 7:
			same(r, "after a crash within a transaction", afterCrash(r, path), before)
		}
	}

	if rapid.Bool().Draw(r, "gives up") {
		do(r, c, "rollback")
		return nil
	}
	do(r, c, "commit")
	return rows
}

// Where nothing can be written a database is read all the same, with what is in its log, and no file is made beside it.
func TestOpenWithoutLocks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.db")
	do(t, logWriter(t, path), "create table t(id integer primary key, v blob not null)", "insert into t values (7, x'0102')")

	// As a process leaves it that was killed.
	crashed := filepath.Join(t.TempDir(), "t.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(crashed+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	db := openWithoutLocks(crashed, []string{"mode=ro", "_pragma=query_only(1)"})
	defer db.Close()
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	same(t, "without locks", rowsOf(t, c), map[int64]string{7: "2"})
	if names, err := filepath.Glob(crashed + "*"); err != nil || len(names) != 2 {
		t.Errorf("beside the database there are %v (%v)", names, err)
	}
}

// logWriter is a connection that keeps few pages in memory, so that a transaction is written before it is complete.
func logWriter(t interface {
	Fatal(...any)
	Cleanup(func())
}, path string,
) *sql.Conn {
	pool := sql.OpenDB(connector{&msqlite.Driver{}, dsn(path, "_pragma=journal_mode(wal)", "_pragma=cache_size(4)")})
	t.Cleanup(func() { pool.Close() })

	c, err := pool.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func do(t interface{ Fatal(...any) }, c *sql.Conn, statements ...string) {
	for _, s := range statements {
		if _, err := c.ExecContext(context.Background(), s); err != nil {
			t.Fatal(s, ": ", err)
		}
	}
}

// rowsOf are the sizes of the rows, by their ids.
func rowsOf(t interface{ Fatal(...any) }, c *sql.Conn) map[int64]string {
	rows, err := c.QueryContext(context.Background(), "select id, length(v) from t")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()

	got := map[int64]string{}
	for rows.Next() {
		var id int64
		var size string
		if err := rows.Scan(&id, &size); err != nil {
			t.Fatal(err)
		}
		got[id] = size
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

// afterCrash is what a process finds that has only the files, and reads them as SQLite itself does.
func afterCrash(t interface{ Fatal(...any) }, path string) map[int64]string {
	dir, err := os.MkdirTemp(filepath.Dir(path), "crash-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)

	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "t.db"+suffix), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	plain := strings.Replace(dsn(filepath.Join(dir, "t.db")), "vfs="+logWritesVFS+"&", "", 1)
	pool := sql.OpenDB(connector{&msqlite.Driver{}, plain})
	defer pool.Close()
	c, err := pool.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	var sound string
	if err := c.QueryRowContext(context.Background(), "pragma integrity_check").Scan(&sound); err != nil || sound != "ok" {
		t.Fatal("the file after a crash is not sound: ", sound, err)
	}
	return rowsOf(t, c)
}

func same(t interface{ Fatal(...any) }, when string, got, want map[int64]string) {
	if !maps.Equal(got, want) {
		t.Fatal(when, ": got ", got, ", want ", want)
	}
}
