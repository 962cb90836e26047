package ledger_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"pgregory.net/rapid"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/steps"
	"rouse/internal/ledger/store"
	"rouse/internal/storage/sqlite"
)

func TestSQLite(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t *testing.T) ledgertest.Open {
		dir := t.TempDir()
		return func(t *testing.T) *ledger.Ledger { return openIn(t, dir) }
	})
}

func openIn(t interface {
	Helper()
	Fatal(...any)
	Cleanup(func())
}, dir string) *ledger.Ledger {
	t.Helper()
	if err := ledgertest.Blank(filepath.Join(dir, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(noCancel, ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestPostgres runs the same tests on PostgreSQL. ROUSE_TEST_POSTGRES is the URL of a database in
// which schemas may be created.
func TestPostgres(t *testing.T) {
	if os.Getenv("ROUSE_TEST_POSTGRES") == "" {
		t.Skip("ROUSE_TEST_POSTGRES is not set; .ci/run sets it")
	}
	admin := ledgertest.OpenPostgres(t, os.Getenv("ROUSE_TEST_POSTGRES"))

	ledgertest.Run(t, func(t *testing.T) ledgertest.Open {
		url, _ := ledgertest.Postgres(t)
		return func(t *testing.T) *ledger.Ledger { return ledgertest.OpenOn(t, url) }
	})

	t.Run("Migration", func(t *testing.T) {
		url, _ := ledgertest.Postgres(t)
		migratePostgres(t, ledgertest.OpenPostgres(t, url))
	})
	t.Run("Copy", copyOnPostgres)
	t.Run("Deadlock", func(t *testing.T) { deadlock(t, admin) })
	t.Run("Restart", func(t *testing.T) {
		url, schema := ledgertest.Postgres(t)
		restart(t, admin, schema, ledgertest.OpenOn(t, url))
	})
}

// restart checks that writes survive a server that drops all connections of the ledger between
// them.
func restart(t *testing.T, admin *sql.DB, name string, l *ledger.Ledger) {
	for i := range 3 {
		if _, err := l.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}); err != nil {
			t.Fatalf("after %d restarts: %v", i, err)
		}

		var dropped int
		if err := admin.QueryRowContext(t.Context(), `select count(*) filter (where pg_terminate_backend(pid, 5000)) from pg_stat_activity where application_name = $1`,
			name).Scan(&dropped); err != nil || dropped == 0 {
			t.Fatalf("%d connections dropped: %v", dropped, err)
		}
	}
}

// deadlock checks that writes are retried if PostgreSQL ends one of two deadlocked processes.
func deadlock(t *testing.T, admin *sql.DB) {
	table := fmt.Sprintf("rouse_test_%d_deadlock", os.Getpid())
	if _, err := admin.ExecContext(t.Context(), fmt.Sprintf("create table %[1]s (id int primary key, n int); insert into %[1]s values (0, 0), (1, 0)", table)); err != nil {
		t.Fatal(err)
	}
	defer admin.ExecContext(noCancel, "drop table "+table)

	var all, held sync.WaitGroup
	held.Add(2)

	for mine := range 2 {
		all.Go(func() {
			w, err := sqlite.NewWriter(t.Context(), admin, sqlite.WriterOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Close()

			add := "update " + table + " set n = n + 1 where id = $1"
			first := true
			if err := w.Do(t.Context(), func(tx *store.Tx) error {
				if _, err := tx.Exec(add, mine); err != nil {
					return err
				}

				if first { // each holds a row before it requests the other's
					first = false
					held.Done()
					held.Wait()
				}

				_, err := tx.Exec(add, 1-mine)
				return err
			}); err != nil {
				t.Errorf("writer %d: %v", mine, err)
			}
		})
	}

	all.Wait()
	var least, most int
	if err := admin.QueryRowContext(t.Context(), "select min(n), max(n) from "+table).Scan(&least, &most); err != nil || least != 2 || most != 2 {
		t.Errorf("written %d to %d times, want 2: %v", least, most, err)
	}
}

func TestOpenRefusesForeignFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("name,amount\n", 400)), 0o600); err != nil {
		t.Fatal(err)
	}

	_, err := ledger.Open(t.Context(), ledger.Options{Path: path})
	var corrupt *sqlite.CorruptError
	if !errors.As(err, &corrupt) {
		t.Errorf("got %v, want a *sqlite.CorruptError", err)
	}
}

// TestOpenRefusesANewerOne checks that a ledger of a newer rouse is refused, and is not reported as
// damaged.
func TestOpenRefusesANewerOne(t *testing.T) {
	t.Parallel()
	path := filled(t, 1)
	l := openIn(t, filepath.Dir(path))
	if err := errors.Join(l.Exec(t.Context(), "pragma user_version = 9999"), l.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
		if err == nil {
			t.Fatalf("it is opened (%v)", l.Close())
		}
		if sqlite.Corrupt(err) {
			t.Errorf("it is called damaged: %v", err)
		}
	}
}

// TestForgottenValues checks that the values of removed runs are removed, even if some are already
// gone.
func TestForgottenValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openIn(t, dir)
	accepted, err := l.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
	must0(t, err)
	_, attempt, err := l.StartAttempt(t.Context(), accepted[0].Run)
	must0(t, err)
	for i := range 4 {
		step := steps.Step{Number: i + 1, Message: fmt.Appendf(nil, `"%d%s"`, i, strings.Repeat("x", 100_000))}
		must0(t, errors.Join(l.Steps.StartStep(t.Context(), attempt, step), l.Steps.FinishStep(t.Context(), attempt, step)))
	}
	must0(t, l.Finish(t.Context(), attempt, ledger.Result{Outcome: domain.OutcomeSuccess}))

	values := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "*"))
		must0(t, err)
		return found
	}
	kept := values()
	if len(kept) != 4 {
		t.Fatalf("values: %v", kept)
	}
	must0(t, os.Remove(kept[1]))
	if n, err := l.Maint.Prune(t.Context(), time.Now().Add(2*time.Hour), func(string) time.Duration { return time.Hour }); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if left := values(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestOpenRefusesNoIdentity checks that a ledger with an empty table of epochs is not opened and
// returns a clear error.
func TestOpenRefusesNoIdentity(t *testing.T) {
	dir := t.TempDir()
	must0(t, openIn(t, dir).Close())
	path := filepath.Join(dir, "ledger.db")
	db, err := sql.Open("sqlite", path)
	must0(t, err)
	_, err = db.ExecContext(t.Context(), "delete from epochs")
	must0(t, errors.Join(err, db.Close()))

	l, err := ledger.OpenReadOnly(t.Context(), ledger.Options{Path: path}, &ledger.ReadOnlyError{Why: "it is looked at"})
	if err == nil {
		must0(t, l.Close())
	}
	if err == nil || !strings.Contains(err.Error(), "no identity") {
		t.Errorf("a ledger without an identity was opened: %v", err)
	}
}

// TestDamagedBlob checks that a large value with other content is reported as damaged. Writing the
// value again repairs a truncated file.
func TestDamagedBlob(t *testing.T) {
	dir := t.TempDir()
	l := openIn(t, dir)
	a, err := l.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
	if err != nil {
		t.Fatal(err)
	}

	_, attempt, err := l.StartAttempt(t.Context(), a[0].Run)
	if err != nil {
		t.Fatal(err)
	}

	large := []byte(`"` + strings.Repeat("x", 100_000) + `"`)
	say := func(number int) {
		t.Helper()
		if err := l.Steps.StartStep(t.Context(), attempt, steps.Step{Number: number}); err != nil {
			t.Fatal(err)
		}
		if err := l.Steps.FinishStep(t.Context(), attempt, steps.Step{Number: number, Message: large}); err != nil {
			t.Fatal(err)
		}
	}

	say(1)
	files, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of values: %v %v", files, err)
	}
	if err := os.WriteFile(files[0], large[:5000], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Steps.List(t.Context(), a[0].Run); err == nil || !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), files[0]) {
		t.Errorf("a cut-off value was read: %v", err)
	}

	say(2)
	steps, err := l.Steps.List(t.Context(), a[0].Run)
	if err != nil || len(steps) != 2 || string(steps[0].Message) != string(large) {
		t.Errorf("the value was not mended: %v", err)
	}
}

// TestValuesInTheDatabase checks large values without a folder for them. They stay in the database,
// can be read after reopening, and are removed with their run.
func TestValuesInTheDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	large := `"` + strings.Repeat("x", 100_000) + `"`
	for attempts := range 2 {
		l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if attempts == 0 {
			a, err := l.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
			must0(t, err)
			_, attempt, err := l.StartAttempt(t.Context(), a[0].Run)
			must0(t, err)
			must0(t, l.Steps.StartStep(t.Context(), attempt, steps.Step{Number: 1}))
			must0(t, l.Steps.FinishStep(t.Context(), attempt, steps.Step{Number: 1, Message: []byte(large)}))
			must0(t, l.Finish(t.Context(), attempt, ledger.Result{Outcome: domain.OutcomeSuccess}))
		}
		if steps, err := l.Steps.List(t.Context(), 1); err != nil || len(steps) != 1 || string(steps[0].Message) != large {
			t.Errorf("read %d steps: %v", len(steps), err)
		}
		if n, err := l.Maint.Prune(t.Context(), time.Now().Add(2*time.Hour), func(string) time.Duration { return time.Duration(3-2*attempts) * time.Hour }); n != attempts || err != nil {
			t.Errorf("%d runs were removed: %v", n, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if names := files(t, filepath.Dir(path)); slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, "ledger.") }) {
		t.Errorf("there are the files %v", names)
	}
}

// TestPrunedValues checks that a large value and its file are removed with the last run that refers
// to it.
func TestPrunedValues(t *testing.T) {
	dir := t.TempDir()
	l := openIn(t, dir)
	for job, messages := range map[string]string{"old": "ab", "young": "bc"} {
		a, err := l.Enqueue(t.Context(), ledger.Request{Job: job, Agent: "a", Trigger: domain.TriggerAPI})
		if err != nil {
			t.Fatal(err)
		}
		_, attempt, err := l.StartAttempt(t.Context(), a[0].Run)
		if err != nil {
			t.Fatal(err)
		}
		for i, letter := range strings.Split(messages, "") {
			must0(t, l.Steps.StartStep(t.Context(), attempt, steps.Step{Number: i}))
			must0(t, l.Steps.FinishStep(t.Context(), attempt, steps.Step{Number: i, Message: []byte(`"` + strings.Repeat(letter, 100_000) + `"`)}))
		}
		must0(t, l.Finish(t.Context(), attempt, ledger.Result{Outcome: domain.OutcomeSuccess}))
	}

	for _, c := range []struct {
		keep map[string]time.Duration
		want int
	}{
		{map[string]time.Duration{"old": 3 * time.Hour, "young": 3 * time.Hour}, 3},
		{map[string]time.Duration{"old": time.Hour, "young": 3 * time.Hour}, 2},
		{map[string]time.Duration{"old": time.Hour, "young": time.Hour}, 0},
	} {
		if _, err := l.Maint.Prune(t.Context(), time.Now().Add(2*time.Hour), func(job string) time.Duration { return c.keep[job] }); err != nil {
			t.Fatal(err)
		}
		if files, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "*")); err != nil || len(files) != c.want {
			t.Errorf("kept for %v there are %d values, want %d: %v", c.keep, len(files), c.want, err)
		}
	}
}

// TestQueueInvariants performs random operations, including reopening. It checks that no accepted
// run is lost, no run has two active attempts, and finished runs stay finished.
func TestQueueInvariants(t *testing.T) {
	t.Parallel()
	base, folders := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		folders++
		dir := filepath.Join(base, fmt.Sprint(folders))
		l := openIn(t, dir)
		defer func() { l.Close() }()

		keys := map[string]int64{}
		current := map[int64]ledger.Attempt{}
		finished := map[int64]domain.Outcome{}
		pick := func(t *rapid.T) (int64, bool) {
			if len(keys) == 0 {
				return 0, false
			}
			return keys[rapid.SampledFrom(sortedKeys(keys)).Draw(t, "run")], true
		}

		t.Repeat(map[string]func(*rapid.T){
			"enqueue": func(t *rapid.T) {
				key := fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "key"))
				a, err := l.Enqueue(noCancel, ledger.Request{Key: key, Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
				if err != nil {
					t.Fatal(err)
				}
				if old, seen := keys[key]; seen && (a[0].New || a[0].Run != old) {
					t.Fatalf("key %s is run %d and %d", key, old, a[0].Run)
				}
				keys[key] = a[0].Run
			},
			"start": func(t *rapid.T) {
				run, any := pick(t)
				if !any {
					return
				}

				_, a, err := l.StartAttempt(noCancel, run)
				_, on := current[run]
				_, over := finished[run]
				if (err == nil) == (on || over) {
					t.Fatalf("run %d: started=%v while on=%v over=%v", run, err == nil, on, over)
				}

				if err == nil {
					current[run] = a
				}
			},
			"finish": func(t *rapid.T) {
				run, any := pick(t)
				a, on := current[run]
				if !any || !on {
					return
				}

				o := rapid.SampledFrom([]domain.Outcome{domain.OutcomeSuccess, domain.OutcomeError}).Draw(t, "outcome")
				if err := l.Finish(noCancel, a, ledger.Result{Outcome: o}); err != nil {
					t.Fatal(err)
				}

				delete(current, run)
				finished[run] = o
			},
			"late finish": func(t *rapid.T) {
				if run, any := pick(t); any {
					a := ledger.Attempt{Run: run, Number: current[run].Number + 1}
					if err := l.Finish(noCancel, a, ledger.Result{Outcome: domain.OutcomeSuccess}); !errors.Is(err, ledger.ErrFenced) {
						t.Fatalf("an attempt that is not on finished run %d: %v", run, err)
					}
				}
			},
			"crash": func(t *rapid.T) {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}

				l = openIn(t, dir)
				running, err := l.Runs.Running(noCancel)
				if err != nil {
					t.Fatal(err)
				}
				if len(running) != len(current) {
					t.Fatalf("%d runs are running, want %d", len(running), len(current))
				}

				for _, r := range running {
					if err := l.Interrupt(noCancel, ledger.Attempt{Run: r.ID, Number: r.Attempt}, "crash", nil); err != nil {
						t.Fatal(err)
					}
				}

				clear(current)
			},
			"": func(t *rapid.T) {
				for _, run := range keys {
					r, err := l.Runs.Get(noCancel, run)
					if err != nil {
						t.Fatal(err)
					}
					if r.Outcome != finished[run] || (r.State == domain.StateFinished) != (finished[run] != "") {
						t.Fatalf("run %d is %s/%s, want outcome %q", run, r.State, r.Outcome, finished[run])
					}
				}
			},
		})
	})
}

// BenchmarkEnqueue accepts runs durably. Compare a single caller with BenchmarkFsync of package
// sqlite, and sixteen callers with one.
func BenchmarkEnqueue(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := openIn(b, b.TempDir())
			work := make(chan struct{}, callers)
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range work {
						if _, err := l.Enqueue(b.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}); err != nil {
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

// BenchmarkRecordDue records a thousand due times durably, each with one row and one queued run.
func BenchmarkRecordDue(b *testing.B) {
	const jobs = 1000
	l := openIn(b, b.TempDir())
	due := make([]ledger.Due, jobs)
	at := time.Now().Truncate(time.Minute)
	for b.Loop() {
		at = at.Add(time.Minute)
		marks := map[string]time.Time{}
		for i := range due {
			job := fmt.Sprint("job", i)
			due[i] = ledger.Due{Job: job, Agent: "a", Source: "cron", Nominal: at, Actual: at, Decision: domain.DecisionRun, Overlap: domain.OverlapAllow}
			marks[job] = at
		}
		accepted, err := l.RecordDue(b.Context(), at, due, marks)
		if err != nil || accepted[0].Run == 0 {
			b.Fatal(accepted[0], err)
		}
	}
	b.ReportMetric(float64(b.N)*jobs/b.Elapsed().Seconds(), "instants/s")
}

// BenchmarkRun measures the ledger's part of one run: accepted, started, finished.
func BenchmarkRun(b *testing.B) {
	l := openIn(b, b.TempDir())
	b.ReportAllocs()

	for b.Loop() {
		a, err := l.Enqueue(b.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
		if err != nil {
			b.Fatal(err)
		}

		_, attempt, err := l.StartAttempt(b.Context(), a[0].Run)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Finish(b.Context(), attempt, ledger.Result{Outcome: domain.OutcomeSuccess}); err != nil {
			b.Fatal(err)
		}
	}

	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

// TestRunsAfterClockSetBack checks that a search by time finds all runs even if the clock was set
// back, so that ids do not grow with time.
func TestRunsAfterClockSetBack(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db"), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	for i := range 400 {
		if _, err := l.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
		if i%50 == 30 {
			now = now.Add(-24 * time.Hour)
		}
	}

	all, err := l.Runs.List(t.Context(), runs.Filter{Limit: 1000})
	if err != nil || len(all) != 400 {
		t.Fatalf("%d runs (%v)", len(all), err)
	}
	for hours := 0; hours < 400; hours += 3 {
		since := time.Date(2026, 3, 1, hours, 0, 0, 0, time.UTC)
		until, want := since.Add(20*time.Hour), 0
		for _, r := range all {
			if !r.QueuedAt.Before(since) && r.QueuedAt.Before(until) {
				want++
			}
		}
		if got, err := l.Runs.List(t.Context(), runs.Filter{Since: since, Until: until, Limit: 1000}); err != nil || len(got) != want {
			t.Errorf("from %s on: %d runs, want %d (%v)", since, len(got), want, err)
		}
	}
}
