package ledger_test

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/store"
	"rouse/internal/storage/sqlite"
)

// secondMigration is a possible later migration: it adds a column, and a table filled from others.
const secondMigration = `alter table jobs add column note text not null default 'none';
create table noted (name text primary key, runs integer not null);
insert into noted select job, count(*) from runs group by job;`

// fillForMigration records a finished and a queued run.
func fillForMigration(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	accepted, err := l.Enqueue(t.Context(), ledger.Request{Key: "done", Job: "j", Agent: "a", Trigger: domain.TriggerManual}, ledger.Request{Key: "waits", Job: "j", Agent: "a", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	_, a, err := l.StartAttempt(t.Context(), accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess}); err != nil {
		t.Fatal(err)
	}
}

// checkMigrated checks that a migrated ledger has its content and accepts new runs.
func checkMigrated(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	if err := l.Exec(t.Context(), "insert into noted select 'migrated', 1 from noted where name = 'j' and runs = 2"); err != nil {
		t.Fatal(err)
	}
	found, err := l.Runs.List(t.Context(), runs.Filter{Limit: 10})
	if err != nil || len(found) != 2 || found[0].Key != "waits" || found[0].State != domain.StateQueued || found[1].Outcome != domain.OutcomeSuccess {
		t.Errorf("runs: %+v %v", found, err)
	}
	ledgertest.Audited(t, l)
	if accepted, err := l.Enqueue(t.Context(), ledger.Request{Key: "new", Job: "j", Agent: "a", Trigger: domain.TriggerManual}); err != nil || accepted[0].Run != 3 {
		t.Errorf("a new run: %+v %v", accepted, err)
	}
}

// TestMigration checks that a ledger of an earlier schema is backed up and migrated, and that the
// backup is a ledger, too.
func TestMigration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	makeForMigration(t, path)

	l, err := ledger.OpenMigrating(t.Context(), ledger.Options{Path: path}, secondMigration)
	if err != nil {
		t.Fatal(err)
	}
	checkMigrated(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	all, err := store.Backups(path)
	if err != nil || len(all) != 1 || all[0].Why != "before-schema-2" {
		t.Fatalf("backups: %+v %v", all, err)
	}
	before, err := ledger.Open(t.Context(), ledger.Options{Path: all[0].Path})
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	if found, err := before.Runs.List(t.Context(), runs.Filter{Limit: 10}); err != nil || len(found) != 2 {
		t.Errorf("the backup: %+v %v", found, err)
	}
}

// TestMigrationFails checks that a failed migration leaves the ledger unchanged.
func TestMigrationFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	makeForMigration(t, filepath.Join(dir, "ledger.db"))

	if _, err := ledger.OpenMigrating(t.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db")}, "create table noted (a); select * from missing"); err == nil || !strings.Contains(err.Error(), "0002_second.sql") {
		t.Fatal(err)
	}
	l := openIn(t, dir)
	if err := l.Exec(t.Context(), "create table noted (name text, runs integer); insert into noted values ('j', 2)"); err != nil {
		t.Fatal(err)
	}
	checkMigrated(t, l)
}

// TestNewerSchema checks that a ledger of a newer schema is refused with a remedy, also for
// reading.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	makeForMigration(t, path)
	l, err := ledger.OpenMigrating(t.Context(), ledger.Options{Path: path}, secondMigration)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	_, err = ledger.Open(t.Context(), ledger.Options{Path: path})
	_, err2 := ledger.OpenShared(t.Context(), ledger.Options{Path: path})
	for _, err := range []error{err, err2} {
		if err == nil || !strings.Contains(err.Error(), "has schema 2, but this rouse supports only schemas up to 1: it was made by a newer rouse, or by an unreleased version") {
			t.Error(err)
		}
	}
}

// migratePostgres is TestMigration without a backup, which is the server's task.
func migratePostgres(t *testing.T, db *sql.DB) {
	l, err := ledger.Open(t.Context(), ledger.Options{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	fillForMigration(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	for range 2 { // the second time there is no work
		if l, err = ledger.OpenMigrating(t.Context(), ledger.Options{DB: db}, secondMigration); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	checkMigrated(t, l)
	if _, err := ledger.Open(t.Context(), ledger.Options{DB: db}); err == nil || !strings.Contains(err.Error(), "has schema 2") {
		t.Error(err)
	}
}

// makeForMigration creates the file of a ledger with fillForMigration.
func makeForMigration(t testing.TB, path string) {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	fillForMigration(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// FuzzMigration migrates damaged ledgers. A damaged file is either migrated, or refused and left
// unchanged.
func FuzzMigration(f *testing.F) {
	path := filepath.Join(f.TempDir(), "ledger.db")
	makeForMigration(f, path)
	sound, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}

	f.Add(uint32(0), []byte(nil), uint32(0))
	f.Add(uint32(60), []byte{0, 0, 0, 9}, uint32(0))                    // another schema
	f.Add(uint32(100), []byte{0, 0xff}, uint32(0))                      // the first page
	f.Add(uint32(5*page), []byte{0xa5, 0xa5, 0xa5, 0xa5}, uint32(0))    // another page
	f.Add(uint32(0), []byte(nil), uint32(page))                         // a page is missing
	f.Add(uint32(0), []byte(nil), uint32(len(sound)-1))                 // the whole file is missing
	f.Add(uint32(len(sound)-40), []byte("finished' or 1"), uint32(100)) // a row
	f.Fuzz(func(t *testing.T, at uint32, change []byte, cut uint32) {
		data := slices.Clone(sound)
		copy(data[int(at)%len(data):], change)
		data = data[:len(data)-int(cut)%len(data)]
		path := filepath.Join(t.TempDir(), "ledger.db")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}

		l, err := ledger.OpenMigrating(t.Context(), ledger.Options{Path: path}, secondMigration)
		if err != nil {
			var refused *ledger.ReadOnlyError
			if after, e := os.ReadFile(path); errors.As(err, &refused) && sqlite.Corrupt(err) && (e != nil || !bytes.Equal(after, data)) {
				t.Errorf("it was refused and changed: %v %v", err, e)
			}
			return
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if l, err = ledger.OpenMigrating(t.Context(), ledger.Options{Path: path}, secondMigration); err != nil {
			t.Fatalf("it was migrated, and does not open again: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
