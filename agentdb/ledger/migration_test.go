package ledger_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"rouse/agentdb/ledger"
	"rouse/agentdb/sqlite"
	"rouse/internal/domain"
)

// schema1 is what a ledger of the first schema holds: a job, an instant that ran, one that
// was skipped, a queued run of an agent, a finished one, and events of a run and of none.
const schema1 = `
insert into jobs (name, agent, schedule_hash, anchor, watermark) values ('j', 'a', 'h', 1000, 2000);
insert into runs (key, job, agent, triggered_by, detail, state, outcome, attempt, queued_at, started_at, finished_at)
	values ('time/j/1500', 'j', 'a', 'schedule', '{}', 'finished', 'error', 1, 1500, 1600, 1700), ('self/x', '', 'a', 'self', '{}', 'queued', '', 0, 1800, 0, 0);
insert into occurrences (job, nominal, actual, decision, reason, run, recorded_at)
	values ('j', 1500, 1501, 'run', '', 1, 1502), ('j', 1600, 1600, 'skipped', 'overlap', 0, 1602);
insert into events (run, seq, job, at, kind) values (1, 1, 'j', 1500, 'run.queued'), (0, 0, 'j', 1600, 'occurrence.skipped');
insert into attempts (run, number, state, started_at) values (1, 1, 'failed', 1600);
`

func migrationOne(t testing.TB, database string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("migrations", database, "0001_ledger.sql"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkMigrated asks a ledger of the newest schema for everything that schema1 put in.
func checkMigrated(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	ctx := t.Context()
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	if r, err := l.Run(ctx, 1); err != nil || r.Key != "time/j/1500" || r.Outcome != domain.OutcomeError || !r.FinishedAt.Equal(at(1700)) {
		t.Errorf("run 1: %+v %v", r, err)
	}
	if waiting, err := l.Claimable(ctx, at(9000), 0, 10); err != nil || len(waiting) != 1 || waiting[0].ID != 2 {
		t.Errorf("the queue: %+v %v", waiting, err)
	}

	found, err := l.Occurrences(ctx, "j", at(1), at(9000), 10)
	want := []ledger.Occurrence{
		{Job: "j", Nominal: at(1600), Actual: at(1600), Decision: "skipped", Reason: "overlap", Instants: 1},
		{Job: "j", Nominal: at(1500), Actual: at(1501), Decision: "run", Run: 1, Outcome: domain.OutcomeError, Instants: 1},
	}
	if err != nil || fmt.Sprintf("%+v", found) != fmt.Sprintf("%+v", want) {
		t.Errorf("instants: %+v %v", found, err)
	}
	if events, err := l.Events(ctx, ledger.EventFilter{Job: "j"}); err != nil || len(events) != 2 {
		t.Errorf("events: %+v %v", events, err)
	}

	jobs, err := l.SyncJobs(ctx, at(9000), []ledger.JobSpec{{Name: "j", Agent: "a", ScheduleHash: "h"}})
	if err != nil || !jobs["j"].Anchor.Equal(at(1000)) || !jobs["j"].Watermark.Equal(at(2000)) {
		t.Errorf("jobs: %+v %v", jobs, err)
	}

	pauses, err := l.Pauses(ctx, time.Time{})
	wakes, err2 := l.Wakes(ctx)
	if err != nil || err2 != nil || len(pauses)+len(wakes) != 0 {
		t.Errorf("pauses %+v %v, wakes %+v %v", pauses, err, wakes, err2)
	}

	// And it goes on: an instant that ran does not run again, a new one does.
	var due []ledger.Due
	for _, nominal := range []int64{1500, 2500} {
		due = append(due, ledger.Due{Job: "j", Agent: "a", Source: "cron", Nominal: at(nominal), Actual: at(nominal), Decision: domain.DecisionRun})
	}
	if o, err := l.RecordDue(ctx, at(9000), due, nil); err != nil || o[0].Run != 1 || o[1].Run <= 2 {
		t.Errorf("recorded: %+v %v", o, err)
	}
}

// A ledger of the first schema is backed up, brought to the newest, and loses nothing; what
// was backed up is a ledger that can be opened in its stead.
func TestMigration(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	ofSchema1(t, path)

	checkMigrated(t, openIn(t, dir))
	if err := os.MkdirAll(filepath.Join(dir, "restored"), 0o700); err != nil {
		t.Fatal(err)
	}
	made := backupBefore(t, path)
	if err := os.Rename(made, filepath.Join(dir, "restored", "ledger.db")); err != nil {
		t.Fatal(err)
	}

	checkMigrated(t, openIn(t, filepath.Join(dir, "restored")))
	backupBefore(t, filepath.Join(dir, "restored", "ledger.db")) // so the backup was of the first schema
}

// backupBefore is the copy that was made before the first schema was migrated.
func backupBefore(t *testing.T, path string) string {
	t.Helper()
	all, err := ledger.Backups(path)
	if err != nil || len(all) != 1 || all[0].Why != "before-schema-2" {
		t.Fatalf("the ledger was not backed up first: %+v %v", all, err)
	}
	return all[0].Path
}

// migratePostgres is TestMigration without a backup, which is the server's.
func migratePostgres(t *testing.T, db *sql.DB) {
	if _, err := db.ExecContext(t.Context(), strings.Join([]string{migrationOne(t, "postgres"),
		"create table schema_version (version bigint not null); insert into schema_version values (1)", schema1}, ";")); err != nil {
		t.Fatal(err)
	}

	var l *ledger.Ledger
	for range 2 { // the second finds nothing to do
		var err error
		if l, err = ledger.Open(t.Context(), ledger.Options{DB: db}); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}

	checkMigrated(t, l)
}

// ofSchema1 makes the file of a ledger of the first schema.
func ofSchema1(t testing.TB, path string) {
	t.Helper()
	text := migrationOne(t, "sqlite") + schema1
	old, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: 0x726f7573, Migrations: fstest.MapFS{"0001_ledger.sql": {Data: []byte(text)}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
}

// FuzzMigration: whatever is in the file of a ledger of the first schema, it is brought to the newest, or refused and left as it was.
func FuzzMigration(f *testing.F) {
	path := filepath.Join(f.TempDir(), "ledger.db")
	ofSchema1(f, path)
	sound, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}

	f.Add(uint32(0), []byte(nil), uint32(0))
	f.Add(uint32(60), []byte{0, 0, 0, 9}, uint32(0))                    // another schema
	f.Add(uint32(100), []byte{0, 0xff}, uint32(0))                      // the first page
	f.Add(uint32(5*page), []byte{0xa5, 0xa5, 0xa5, 0xa5}, uint32(0))    // another
	f.Add(uint32(0), []byte(nil), uint32(page))                         // a page is missing
	f.Add(uint32(0), []byte(nil), uint32(len(sound)-1))                 // all of it is
	f.Add(uint32(len(sound)-40), []byte("finished' or 1"), uint32(100)) // a row
	f.Fuzz(func(t *testing.T, at uint32, change []byte, cut uint32) {
		data := slices.Clone(sound)
		copy(data[int(at)%len(data):], change)
		data = data[:len(data)-int(cut)%len(data)]
		path := filepath.Join(t.TempDir(), "ledger.db")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}

		l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
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
		if l, err = ledger.Open(t.Context(), ledger.Options{Path: path}); err != nil {
			t.Fatalf("it was brought to the newest schema, and does not open again: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
