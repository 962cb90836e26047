package scheduler_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/runs"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// start is the initial time of a synctest bubble.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

type daemon struct {
	t    *testing.T
	path string
	l    *ledger.Ledger
	log  strings.Builder
	s    *scheduler.Scheduler
	stop func()
}

// TestMain allows many parallel tests, because they wait for the disk.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))); err != nil {
		os.Exit(2)
	}

	os.Exit(m.Run())
}

// inBubble runs a parallel test with its own clock and ledger.
func inBubble(t *testing.T, test func(t *testing.T, d *daemon)) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := ledgertest.Blank(path); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}

		d := &daemon{t: t, path: path, l: l, stop: func() {}}
		test(t, d)
		d.stop()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// start sets jobs in a new scheduler, like a start of the daemon.
func (d *daemon) start(jobs ...scheduler.Job) {
	d.t.Helper()
	d.startAgents(nil, jobs...)
}

// startAgents is like start, with agents that may plan their own runs.
func (d *daemon) startAgents(agents []string, jobs ...scheduler.Job) {
	d.t.Helper()
	s, err := scheduler.New(scheduler.Options{Ledger: d.l, Logger: slog.New(slog.NewTextHandler(&d.log, nil))})
	if err != nil {
		d.t.Fatal(err)
	}
	d.begin(s, agents, jobs...)
}

func (d *daemon) begin(s *scheduler.Scheduler, agents []string, jobs ...scheduler.Job) {
	d.t.Helper()
	if err := s.Set(d.t.Context(), jobs, agents); err != nil {
		d.t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(d.t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := s.Run(ctx); err != nil {
			d.t.Error(err)
		}
	}()

	<-s.Ready()
	d.s = s
	d.stop = func() { cancel(); <-over; d.stop = func() {} }
}

func (d *daemon) runs() []ledger.Run {
	d.t.Helper()
	synctest.Wait()
	runs, err := d.l.Runs.List(d.t.Context(), runs.Filter{Limit: 100_000})
	if err != nil {
		d.t.Fatal(err)
	}

	slices.Reverse(runs)
	return runs
}

func (d *daemon) occurrences(job string) []runs.Occurrence {
	d.t.Helper()
	rows, err := d.l.Occurrences.List(d.t.Context(), job, start, time.Now(), 1000)
	if err != nil {
		d.t.Fatal(err)
	}
	return rows
}

// full makes inserts of occurrences fail, like a full disk, or restores them.
func (d *daemon) full(yes bool) {
	d.t.Helper()
	db, err := sql.Open("sqlite", d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer db.Close()

	query := `drop trigger full`
	if yes {
		query = `create trigger full before insert on occurrences begin select raise(abort, 'disk full'); end`
	}
	if _, err := db.Exec(query); err != nil {
		d.t.Fatal(err)
	}
}

func job(t *testing.T, name string, o schedule.Options) scheduler.Job {
	t.Helper()
	s, err := schedule.Parse(o)
	if err != nil {
		t.Fatal(err)
	}
	return scheduler.Job{Name: name, Agent: "a", Schedules: []*schedule.Schedule{s}, Overlap: "allow"}
}

// A six-field schedule of every second fires once per second, even across a restart.
func TestEverySecondOverARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		j := job(t, "tick", schedule.Options{Cron: "* * * * * *"})
		d.start(j)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		d.stop()
		time.Sleep(3500 * time.Millisecond)
		d.start(j)
		time.Sleep(10 * time.Second)
		runs := d.runs()
		seen := map[time.Time]bool{}
		for _, r := range runs {
			if seen[r.ScheduledAt] {
				t.Errorf("%s fired twice", r.ScheduledAt)
			}
			seen[r.ScheduledAt] = true
			if r.QueuedAt.Before(r.ScheduledAt) {
				t.Errorf("%s fired early, at %s", r.ScheduledAt, r.QueuedAt)
			}
		}

		rows, err := d.l.Occurrences.List(t.Context(), "tick", start, time.Now(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 23 {
			t.Errorf("%d instants have a row, want 23", len(rows))
		}

		missed := 0
		for _, o := range rows {
			if o.Decision == domain.DecisionMissed {
				missed++
				if o.Reason == "" {
					t.Errorf("%s was missed without a reason", o.Nominal)
				}
			}
		}

		if missed != 2 || len(runs) != 21 {
			t.Errorf("%d missed, %d runs; three seconds fell into the restart, and the last of them is caught up", missed, len(runs))
		}
	})
}

func TestReloadKeepsWhatDidNotChange(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		d.start(job(t, "kept", schedule.Options{Every: "1h"}), job(t, "changed", schedule.Options{Every: "1h"}))
		time.Sleep(90 * time.Minute)
		if err := d.s.Set(t.Context(), []scheduler.Job{job(t, "kept", schedule.Options{Every: "1h"}), job(t, "changed", schedule.Options{Every: "2h"})}, nil); err != nil {
			t.Fatal(err)
		}

		time.Sleep(150 * time.Minute)
		var got []string
		for _, r := range d.runs() {
			got = append(got, fmt.Sprint(r.Job, " ", r.ScheduledAt.Sub(start)))
		}

		slices.Sort(got)
		want := []string{"changed 1h0m0s", "changed 3h30m0s", "kept 1h0m0s", "kept 2h0m0s", "kept 3h0m0s", "kept 4h0m0s"}
		if !slices.Equal(got, want) {
			t.Errorf("fired %v, want %v", got, want)
		}
	})
}

// Instants that were due without a daemon are decided at the start, regardless of the number of
// lanes (OSA-77).
func TestMissedIsDecidedAtStart(t *testing.T) {
	for policy, want := range map[domain.OnMiss]int{domain.MissSkip: 0, domain.MissRunOnce: 1, domain.MissCatchup: 5} {
		for _, overlap := range []domain.Overlap{domain.OverlapSkip, domain.OverlapQueueAll, domain.OverlapAllow} {
			t.Run(string(policy)+", "+string(overlap), func(t *testing.T) {
				inBubble(t, func(t *testing.T, d *daemon) {
					j := job(t, "hourly", schedule.Options{Cron: "0 * * * *"})
					j.Policy.OnMiss, j.Overlap = policy, overlap
					d.start(j)
					d.stop()
					time.Sleep(5*time.Hour + 10*time.Minute)
					d.start(j)
					if runs := d.runs(); len(runs) != want {
						t.Errorf("%d runs, want %d", len(runs), want)
					}

					rows, err := d.l.Occurrences.List(t.Context(), "hourly", start, time.Now(), 100)
					if err != nil || len(rows) != 5 {
						t.Errorf("%d instants have a row, want 5 (%v)", len(rows), err)
					}
				})
			})
		}
	}
}

func TestAtFiresOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		j := job(t, "once", schedule.Options{At: "2000-01-01T06:00:00Z"})
		for range 4 {
			d.start(j)
			time.Sleep(4 * time.Hour)
			synctest.Wait()
			d.stop()
		}

		if runs := d.runs(); len(runs) != 1 || !runs[0].ScheduledAt.Equal(start.Add(6*time.Hour)) {
			t.Errorf("runs: %+v", runs)
		}
	})
}

// A daemon that restarts in a loop does not accumulate start runs. Each start has a row.
func TestRunOnStart(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		j := job(t, "j", schedule.Options{Cron: "0 8 * * *"})
		j.RunOnStart, j.Overlap = true, "skip"
		for range 5 {
			d.start(j)
			synctest.Wait()
			d.stop()
			time.Sleep(time.Second)
		}

		runs := d.runs()
		if len(runs) != 1 || !strings.Contains(string(runs[0].Detail), `"source":"start"`) || !runs[0].ScheduledAt.Equal(start) {
			t.Errorf("runs after five starts: %+v", runs)
		}

		rows := d.occurrences("j")
		if len(rows) != 5 || rows[0].Decision != domain.DecisionSkipped || !strings.Contains(rows[0].Reason, "overlap") || rows[4].Decision != domain.DecisionRun {
			t.Errorf("rows of the starts: %+v", rows)
		}
	})
}

// Instants that are due while the ledger is not writable are recorded later, once.
func TestTheLedgerFailsForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		j := job(t, "j", schedule.Options{Cron: "0 * * * *"})
		j.RunOnStart = true
		d.full(true)
		d.start(j)
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		d.full(false)
		time.Sleep(2 * time.Second)
		if runs := d.runs(); len(runs) != 2 || !runs[0].ScheduledAt.Equal(start) || !runs[1].ScheduledAt.Equal(start.Add(time.Hour)) {
			t.Errorf("runs: %+v", runs)
		}
		if n := strings.Count(d.log.String(), "could not be recorded"); n != 1 || !strings.Contains(d.log.String(), "recorded again") {
			t.Errorf("the failure was logged %d times:\n%s", n, d.log.String())
		}

		rows := d.occurrences("j")
		if want := "caught up 1m1s late (the record could not be written); on_miss is run_once"; len(rows) != 2 || rows[0].Reason != want {
			t.Errorf("%+v, want %q", rows, want)
		}
	})
}

// Overlap is decided by the runs in the ledger, so it works across a restart.
func TestOverlapSurvivesARestart(t *testing.T) {
	for policy, want := range map[domain.Overlap]string{
		"":                "run skipped skipped",
		"skip":            "run skipped skipped",
		"queue_one":       "run run skipped",
		"queue_all":       "run run run",
		"allow":           "run run run",
		"cancel_previous": "run run run",
	} {
		t.Run(string(policy), func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				j := job(t, "j", schedule.Options{Cron: "0 * * * *"})
				j.Overlap = policy
				d.start(j)
				time.Sleep(61 * time.Minute)
				first := d.runs()[0].ID
				if _, _, err := d.l.StartAttempt(t.Context(), first); err != nil {
					t.Fatal(err)
				}

				d.stop()
				d.start(j)
				time.Sleep(2 * time.Hour)
				d.runs()
				var got []string
				for _, o := range d.occurrences("j") {
					got = append(got, string(o.Decision))
				}

				slices.Reverse(got)
				if strings.Join(got, " ") != want {
					t.Errorf("%v, want %s", got, want)
				}

				r, err := d.l.Runs.Get(t.Context(), first)
				if err != nil || (r.CancelReason != "") != (policy == "cancel_previous") {
					t.Errorf("the first run: %+v (%v)", r, err)
				}
			})
		})
	}
}

// The ledger stores both times of an occurrence with jitter. The run cannot be claimed before the
// actual one.
func TestJitterHoldsARunBack(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		d.start(job(t, "j", schedule.Options{Cron: "0 * * * *", Jitter: 30 * time.Minute, Job: "j"}))
		time.Sleep(time.Hour + time.Second)
		r := d.runs()[0]
		o := d.occurrences("j")[0]
		if !o.Nominal.Equal(start.Add(time.Hour)) || !o.Actual.After(o.Nominal) || !r.NotBefore.Equal(o.Actual) || !r.ScheduledAt.Equal(o.Nominal) {
			t.Errorf("occurrence %+v, run %+v", o, r)
		}
		if now, err := d.l.Runs.Claimable(t.Context(), o.Actual.Add(-time.Millisecond), 0, 10); err != nil || len(now) != 0 {
			t.Errorf("claimable before its time: %+v (%v)", now, err)
		}
	})
}

// Frequent reloads neither lose nor duplicate instants.
func TestReloadsFireNothingTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		j := job(t, "j", schedule.Options{Cron: "*/10 * * * * *"})
		d.start(j)

		for range 100 {
			time.Sleep(2500 * time.Millisecond)
			if err := d.s.Set(t.Context(), []scheduler.Job{j}, nil); err != nil {
				t.Fatal(err)
			}
		}

		if runs := d.runs(); len(runs) != 25 {
			t.Errorf("%d runs in 250 s, want 25", len(runs))
		}
		if err := d.s.Set(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute)
		if runs := d.runs(); len(runs) != 25 || len(d.occurrences("j")) != 25 {
			t.Errorf("after it was removed: %d runs, %d rows", len(runs), len(d.occurrences("j")))
		}
	})
}

// Many jobs that are due at once are recorded in one batch. A reader never sees a part of the
// batch. ROUSE_TEST_RUNS=all increases the number of jobs.
func TestManyAtOnce(t *testing.T) {
	many := many
	if os.Getenv("ROUSE_TEST_RUNS") == "all" {
		many = 10_000
	}
	inBubble(t, func(t *testing.T, d *daemon) {
		var jobs []scheduler.Job
		for i := range many {
			jobs = append(jobs, job(t, fmt.Sprint("j", i), schedule.Options{Cron: "0 6 * * *"}))
		}

		d.start(jobs...)
		time.Sleep(6*time.Hour - time.Second)
		synctest.Wait()
		commits := 0
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-d.l.Changed():
					commits++
				case <-stop:
					return
				}
			}
		}()

		time.Sleep(time.Minute)
		synctest.Wait()
		close(stop)
		if runs := d.runs(); len(runs) != many || commits != 1 {
			t.Errorf("%d runs in %d commits", len(runs), commits)
		}
	})
}

func TestNext(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		d.start(job(t, "a", schedule.Options{Cron: "0 8 * * *"}), job(t, "b", schedule.Options{Every: "7h"}))
		var got []string
		for _, u := range d.s.Next("", 4, start) {
			got = append(got, fmt.Sprint(u.Job, " ", u.Nominal.Sub(start)))
		}
		if want := []string{"b 7h0m0s", "a 8h0m0s", "b 14h0m0s", "b 21h0m0s"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
