package agentdb_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/pool"
	"rouse/agentdb/schema"
	"rouse/internal/storage/dbfile"
)

func newPool(t *testing.T, o pool.Options) *pool.Pool {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}

	p, err := pool.New(o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { p.Close() })
	return p
}

// lent returns an agent's database of a pool until the test ends.
func lent(t testing.TB, p *pool.Pool, agent string) *agentdb.DB {
	t.Helper()
	db, release, err := p.Get(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return db
}

// with lends an agent's database while do runs.
func with(t testing.TB, p *pool.Pool, agent string, do func(*agentdb.DB)) {
	t.Helper()
	db, release, err := p.Get(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	do(db)
}

func backup(t testing.TB, db *agentdb.DB, spec agentdb.BackupSpec) agentdb.Backup {
	t.Helper()
	b, err := db.Backups.Make(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func names(t testing.TB, p *pool.Pool, agent string) (out []string) {
	t.Helper()
	all, err := p.Recovery.Backups(agent)
	if err != nil {
		t.Fatal(err)
	}

	for _, b := range all {
		out = append(out, b.Why)
	}
	return out
}

// A backup shows one point in time, is made during other writes, and can be opened.
func TestBackupWhileWriting(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	var rows []map[string]any
	for range 3000 {
		rows = append(rows, map[string]any{"note": strings.Repeat("x", 400)})
	}

	insert(t, db, "expenses", rows...)
	file := filepath.Join(t.TempDir(), "copy.sqlite")
	var during int
	var told int64
	b := backup(t, db, agentdb.BackupSpec{File: file, Progress: func(done, of int64) {
		told = max(told, done)
		if done < of { // at least one step remains
			insert(t, db, "expenses", map[string]any{"note": "late"})
			during++
		}
	}})
	if during == 0 {
		t.Fatal("nobody wrote meanwhile")
	}
	if b.Path != file || b.Bytes < 1<<20 || b.Why != "manual" || told < b.Bytes/2 || told > b.Bytes {
		t.Errorf("%+v, of which %d bytes were told", b, told)
	}

	again := open(t, file)
	if got := ask(t, again, "select count(*), sum(note = 'late') from expenses"); got != "[[3000,0]]" {
		t.Errorf("the copy holds %s", got)
	}
	if got := ask(t, db, "select count(*) from expenses"); got != fmt.Sprintf("[[%d]]", 3000+during) {
		t.Errorf("the database holds %s", got)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.partial*")); err != nil || len(left) > 0 {
		t.Errorf("left lying: %v %v", left, err)
	}
}

// A backup does not overwrite a file, and a cancelled backup leaves no file.
func TestBackupRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "db.sqlite")
	db := open(t, path)
	expenses(t, db)
	there := filepath.Join(dir, "there.sqlite")
	if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, file := range []string{there, path, dir} {
		_, err := db.Backups.Make(t.Context(), agentdb.BackupSpec{File: file, Overwrite: file != there})
		wantError(t, err, "invalid_args", "file", file)
	}

	if text, err := os.ReadFile(there); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	if _, err := db.Backups.Make(ctx, agentdb.BackupSpec{File: there, Overwrite: true, Progress: func(int64, int64) { cancel() }}); err == nil {
		// A file with a single step is complete before it can be cancelled.
		t.Log("it was faster")
	} else if text, e := os.ReadFile(there); e != nil || string(text) != "mine" {
		t.Errorf("%q, %v after %v", text, e, err)
	}

	if _, err := db.Backups.Make(t.Context(), agentdb.BackupSpec{File: filepath.Join(dir, "none", "x.sqlite")}); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("error %v", err)
	}

	backup(t, db, agentdb.BackupSpec{File: there, Overwrite: true})
	if got := ask(t, open(t, there), "select count(*) from expenses"); got != "[[0]]" {
		t.Error(got)
	}
}

// OSA-53: before a run's first schema change a backup is made. The newest five automatic backups
// and all manual ones are kept.
func TestBackupBeforeMigrations(t *testing.T) {
	t.Parallel()
	p := newPool(t, pool.Options{Backups: agentdb.KeepBackups})
	db := lent(t, p, "ann")
	migrate := func(run int64, column string) {
		t.Helper()
		if _, err := db.Migrate(t.Context(), changelog.By{Run: run}, agentdb.MigrateSpec{Up: "alter table expenses add column " + column, Down: "select 1", Description: "d"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Migrate(t.Context(), changelog.By{Run: 1}, agentdb.MigrateSpec{Up: "create table t(a)", Down: "drop table t", Description: "d"}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, p, "ann"); len(got) != 0 {
		t.Errorf("%v of an empty database", got)
	}

	expenses(t, db)
	backup(t, db, agentdb.BackupSpec{})
	migrate(2, "a")
	migrate(2, "b") // the previous state is already saved
	if _, err := db.AlterTable(t.Context(), changelog.By{Run: 3}, "expenses", []schema.Column{{Name: "c", Type: "TEXT"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Execute(t.Context(), changelog.By{Run: 4}, agentdb.ExecuteSpec{SQL: "alter table expenses rename column a to a2"}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Execute(t.Context(), changelog.By{Run: 5}, agentdb.ExecuteSpec{SQL: "insert into expenses(note) values ('x')"}); err != nil {
		t.Fatal(err)
	}

	if got := strings.Join(names(t, p, "ann"), " "); got != "before-run-4 before-run-3 before-run-2 manual" {
		t.Errorf("copies: %s", got)
	}

	for run := int64(12); run < 15; run++ { // changes without an effect
		if _, err := db.AlterTable(t.Context(), changelog.By{Run: run}, "expenses", []schema.Column{{Name: "c", Type: "TEXT"}}); err == nil {
			t.Error("a column was added twice")
		}
		if _, err := db.Execute(t.Context(), changelog.By{Run: run}, agentdb.ExecuteSpec{SQL: "drop view nowhere"}); err == nil {
			t.Error("a view was dropped that is none")
		}
		if _, err := db.Migrate(t.Context(), changelog.By{Run: run}, agentdb.MigrateSpec{Up: "alter table nowhere add column a", Down: "select 1", Description: "d"}); err == nil {
			t.Error("a table was altered that is none")
		}
	}

	if got := strings.Join(names(t, p, "ann"), " "); got != "before-run-4 before-run-3 before-run-2 manual" {
		t.Errorf("copies after changes that were refused: %s", got)
	}

	for run := int64(6); run < 12; run++ {
		migrate(run, fmt.Sprint("x", run))
	}

	if got := strings.Join(names(t, p, "ann"), " "); got != "before-run-11 before-run-10 before-run-9 before-run-8 before-run-7 manual" {
		t.Errorf("copies: %s", got)
	}

	all, err := p.Recovery.Backups("ann")
	if err != nil {
		t.Fatal(err)
	}

	// A repeated call is not executed again, so no backup is made.
	for attempt := range 2 {
		if _, err := db.Migrate(t.Context(), changelog.By{Run: 20, Key: "k"}, agentdb.MigrateSpec{Up: "create table once(a)", Down: "drop table once", Description: "d"}); err != nil {
			t.Fatal(err)
		}
		kept, err := p.Recovery.Backups("ann")
		if err != nil {
			t.Fatal(err)
		}
		if attempt == 0 {
			if err := os.Remove(kept[0].Path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := names(t, p, "ann"); got[0] != "before-run-11" || len(got) != 5 {
		t.Errorf("copies after a call that was repeated: %v", got)
	}
	if got := system(t, db, "select count(*) || max(agent) from _owner"); got != "1ann" {
		t.Errorf("the database belongs to %s", got)
	}

	again := open(t, all[len(all)-1].Path)
	if schema, err := again.Schema(t.Context()); err != nil || len(schema.Tables[1].Columns) > 8 {
		t.Errorf("%v, %v", schema, err)
	}
}

// A database is copied before a migration. The test is not parallel, because it replaces the
// package's migrations.
func TestBackupBeforeAnUpgrade(t *testing.T) {
	dir := t.TempDir()
	p := newPool(t, pool.Options{Dir: dir})
	with(t, p, "ann", func(db *agentdb.DB) { expenses(t, db) })
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	agentdb.AddMigration(t, "create table _later (a)")
	p = newPool(t, pool.Options{Dir: dir, Backups: agentdb.KeepBackups})
	with(t, p, "ann", func(db *agentdb.DB) {
		if got := system(t, db, "select count(*) from _later"); got != "0" {
			t.Errorf("the new table has %s rows", got)
		}
	})
	if got := strings.Join(names(t, p, "ann"), " "); got != "before-schema-2" {
		t.Errorf("copies: %s", got)
	}
}

// Restore replaces the database, keeps the previous one, and records itself in the changelog.
// Another restore reverses it.
func TestRestore(t *testing.T) {
	t.Parallel()
	p := newPool(t, pool.Options{})
	count := func() string {
		t.Helper()
		var got string
		with(t, p, "ann", func(db *agentdb.DB) { got = ask(t, db, "select count(*) from expenses") })
		return got
	}

	var first, second agentdb.Backup
	with(t, p, "ann", func(db *agentdb.DB) {
		expenses(t, db)
		insert(t, db, "expenses", map[string]any{"amount": 1})
		first = backup(t, db, agentdb.BackupSpec{})
		insert(t, db, "expenses", map[string]any{"amount": 2})
		second = backup(t, db, agentdb.BackupSpec{})
		insert(t, db, "expenses", map[string]any{"amount": 3})
	})

	done, err := p.Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: "last"})
	if err != nil {
		t.Fatal(err)
	}
	if done.From != second.Path || done.Kept == "" || count() != "[[2]]" {
		t.Errorf("%+v: %s", done, count())
	}
	for _, name := range []string{"migrations", "schema.sql"} { // they describe the replaced database
		if _, err := os.Stat(filepath.Join(done.Kept, name)); err != nil {
			t.Error(err)
		}
	}

	with(t, p, "ann", func(db *agentdb.DB) {
		if got := system(t, db, "select actor || ' ' || sql from _changelog order by id desc limit 1"); !strings.HasPrefix(got, "user -- the owner restored this database from "+second.Path) {
			t.Error(got)
		}
		insert(t, db, "expenses", map[string]any{"amount": 4})
	})
	if _, err := p.Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: first.Name}); err != nil || count() != "[[1]]" {
		t.Errorf("%v: %s", err, count())
	}

	all, err := p.Recovery.Backups("ann")
	if err != nil {
		t.Fatal(err)
	}

	i := 0
	for i < len(all)-1 && all[i].Path != filepath.Join(done.Kept, "db.sqlite") {
		i++
	}

	if all[i].Why != "replaced" {
		t.Fatalf("%+v", all)
	}
	if _, err := p.Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: all[i].Name}); err != nil || count() != "[[3]]" {
		t.Errorf("%v: %s", err, count())
	}
	if _, err := p.Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: first.Path}); err != nil || count() != "[[1]]" {
		t.Errorf("%v: %s", err, count())
	}

	if reset, err := p.Recovery.Reset(t.Context(), "ann", nil); err != nil || reset.Kept == "" {
		t.Errorf("%+v, %v", reset, err)
	}

	with(t, p, "ann", func(db *agentdb.DB) {
		if schema, err := db.Schema(t.Context()); err != nil || len(schema.Tables) != 0 {
			t.Errorf("%v, %v", schema, err)
		}
	})
	if got := strings.Join(names(t, p, "ann"), " "); strings.Count(got, "replaced") != 5 || strings.Count(got, "manual") != 2 {
		t.Errorf("kept: %s", got)
	}
}

// An interrupted replacement is completed on the next Get. One that had not begun leaves no
// files.
func TestReplacementGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "ann", "db.sqlite")
	count := func() (got string) {
		p := newPool(t, pool.Options{Dir: dir})
		with(t, p, "ann", func(db *agentdb.DB) { got = ask(t, db, "select count(*) from expenses") })
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		return got
	}
	with(t, newPool(t, pool.Options{Dir: dir}), "ann", func(db *agentdb.DB) { expenses(t, db) })

	for _, begun := range []bool{false, true} {
		db := open(t, path+dbfile.NewSuffix)
		expenses(t, db)
		insert(t, db, "expenses", map[string]any{"amount": 1})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}

		want := "[[0]]"
		if begun {
			marker, err := dbfile.ReadMarker(path + dbfile.NewSuffix)
			if err != nil {
				t.Fatal(err)
			}
			marker.State, marker.Aside = dbfile.StateReplacing, "aside"
			if err := dbfile.WriteMarker(path, marker); err != nil {
				t.Fatal(err)
			}
			want = "[[1]]"
		}
		if got := count(); got != want {
			t.Errorf("begun %v: it has %s rows, want %s", begun, got, want)
		}
		if _, err := os.Stat(path + dbfile.NewSuffix); err == nil {
			t.Errorf("begun %v: the new file is still there", begun)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ann", "aside", "db.sqlite")); err != nil {
		t.Error(err)
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := newPool(t, pool.Options{Dir: dir})
	with(t, p, "ann", func(db *agentdb.DB) { expenses(t, db); backup(t, db, agentdb.BackupSpec{}) })
	var bobs agentdb.Backup
	with(t, p, "bob", func(db *agentdb.DB) { expenses(t, db); bobs = backup(t, db, agentdb.BackupSpec{}) })
	with(t, p, "ann", func(db *agentdb.DB) { insert(t, db, "expenses", map[string]any{"amount": 1}) })
	text := filepath.Join(dir, "a.csv")
	if err := os.WriteFile(text, []byte("a,b\n1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	damaged := filepath.Join(dir, "damaged.sqlite")
	data, err := os.ReadFile(bobs.Path)
	if err != nil {
		t.Fatal(err)
	}

	clear(data[3*page : 6*page])
	if err := os.WriteFile(damaged, data, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ from, part string }{
		{"", "no backup"}, {"2019", "no backup"}, {"2", "give more"}, {text, "cannot be restored"}, {empty, "cannot be restored"}, {dir, "is not a file"},
		{filepath.Join(dir, "none"), "cannot be read"}, {filepath.Join(dir, "ann", "db.sqlite"), "is the database itself"},
		{bobs.Path, "of the agent bob"}, {damaged, "cannot be restored"},
	} {
		if c.from == "2" {
			with(t, p, "ann", func(db *agentdb.DB) { backup(t, db, agentdb.BackupSpec{}) })
		}

		var bad *dberr.Error
		if _, err := p.Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: c.from}); !errors.As(err, &bad) || !strings.Contains(err.Error(), c.part) {
			t.Errorf("from %q: %v, want %q", c.from, err, c.part)
		}

		with(t, p, "ann", func(db *agentdb.DB) {
			if got := ask(t, db, "select count(*) from expenses"); got != "[[1]]" {
				t.Errorf("after %q: %s", c.from, got)
			}
		})
	}

	if left, err := filepath.Glob(filepath.Join(dir, "ann", "*-new*")); err != nil || len(left) > 0 {
		t.Errorf("left lying: %v %v", left, err)
	}
	if _, err := p.Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: bobs.Path, Force: true}); err != nil {
		t.Fatal(err)
	}

	with(t, p, "ann", func(db *agentdb.DB) {
		if got := system(t, db, "select group_concat(agent) from _owner"); got != "ann" {
			t.Errorf("it is %s's", got)
		}
	})
}

// An unusable database is restored from its last good backup, and is kept.
func TestRestoreOfADamagedOne(t *testing.T) {
	dir := t.TempDir()
	p := newPool(t, pool.Options{Dir: dir})
	var newer agentdb.Backup
	with(t, p, "ann", func(db *agentdb.DB) {
		expenses(t, db)
		backup(t, db, agentdb.BackupSpec{})
		newer = backup(t, db, agentdb.BackupSpec{})
		insert(t, db, "expenses", map[string]any{"amount": 1})
	})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{filepath.Join(dir, "ann", "db.sqlite"), newer.Path} {
		if err := os.WriteFile(path, []byte(strings.Repeat("x", 5000)), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	p = newPool(t, pool.Options{Dir: dir})
	if _, _, err := p.Get(t.Context(), "ann"); err == nil || !strings.Contains(err.Error(), "rouse db ann restore last") {
		t.Fatalf("error %v", err)
	}

	done, err := p.Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: "last"})
	if err != nil {
		t.Fatal(err)
	}
	if len(done.Skipped) != 1 || done.Skipped[0] != newer.Name {
		t.Errorf("passed over: %v", done.Skipped)
	}
	if err := p.Quarantined("ann"); err != nil {
		t.Error(err)
	}

	with(t, p, "ann", func(db *agentdb.DB) {
		if got := ask(t, db, "select count(*) from expenses"); got != "[[0]]" {
			t.Error(got)
		}
	})
	if text, err := os.ReadFile(filepath.Join(done.Kept, "db.sqlite")); err != nil || len(text) != 5000 {
		t.Errorf("the damaged one was not kept: %v", err)
	}
}

// A user keeps a database until it is released. A Get during a replacement returns the new
// database.
func TestRestoreWaits(t *testing.T) {
	p := newPool(t, pool.Options{})
	db, release, err := p.Get(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}

	expenses(t, db)
	backup(t, db, agentdb.BackupSpec{})
	over, end := context.WithCancel(t.Context())
	end()
	if _, err := p.Recovery.Restore(over, "ann", pool.RestoreSpec{From: "last"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("what was cut off says %v", err)
	}

	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()

	if _, err := p.Recovery.Restore(short, "ann", pool.RestoreSpec{From: "last"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}

	insert(t, db, "expenses", map[string]any{"amount": 1})
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := p.Recovery.Restore(context.Background(), "ann", pool.RestoreSpec{From: "last"}); err != nil {
			t.Error(err)
		}
	})

	for p.Quarantined("ann") == nil { // until Restore waits for the database
		runtime.Gosched()
	}

	for range 5 {
		all.Go(func() {
			db, release, err := p.Get(context.Background(), "ann")
			if err != nil {
				t.Error(err)
				return
			}
			defer release()

			if got := ask(t, db, "select count(*) from expenses"); got != "[[0]]" {
				t.Errorf("the old one was lent: %s", got)
			}
		})
	}

	insert(t, db, "expenses", map[string]any{"amount": 2}) // still in use
	release()
	all.Wait()
}
