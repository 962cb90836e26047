package scheduler_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agentdb/ledger"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// start is when a synctest bubble begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

type daemon struct {
	t    *testing.T
	l    *ledger.Ledger
	s    *scheduler.Scheduler
	stop func()
}

func inBubble(t *testing.T, test func(t *testing.T, d *daemon)) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) {
		l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		d := &daemon{t: t, l: l, stop: func() {}}
		test(t, d)
		d.stop()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// start arms jobs in a new scheduler, as a start of the daemon does.
func (d *daemon) start(jobs ...scheduler.Job) {
	d.t.Helper()
	s, err := scheduler.New(scheduler.Options{Ledger: d.l})
	if err != nil {
		d.t.Fatal(err)
	}
	if err := s.Set(d.t.Context(), jobs); err != nil {
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
	runs, err := d.l.Runs(d.t.Context(), ledger.Filter{Limit: 100_000})
	if err != nil {
		d.t.Fatal(err)
	}
	slices.Reverse(runs)
	return runs
}

func job(t *testing.T, name string, o schedule.Options) scheduler.Job {
	t.Helper()
	s, err := schedule.Parse(o)
	if err != nil {
		t.Fatal(err)
	}
	return scheduler.Job{Name: name, Agent: "a", Schedules: []*schedule.Schedule{s}, Overlap: "allow"}
}

// A six-field every-second job fires once per second, never early, never twice, over a restart.
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
		rows, err := d.l.Occurrences(t.Context(), "tick", start, time.Now(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 23 {
			t.Errorf("%d instants have a row, want 23", len(rows))
		}
		missed := 0
		for _, o := range rows {
			if o.Decision == ledger.DecisionMissed {
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
		if err := d.s.Set(t.Context(), []scheduler.Job{job(t, "kept", schedule.Options{Every: "1h"}), job(t, "changed", schedule.Options{Every: "2h"})}); err != nil {
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

func TestMissedIsDecidedAtStart(t *testing.T) {
	for policy, want := range map[string]int{schedule.MissSkip: 0, schedule.MissRunOnce: 1, schedule.MissCatchup: 5} {
		t.Run(policy, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				j := job(t, "hourly", schedule.Options{Cron: "0 * * * *"})
				j.Policy.OnMiss, j.Overlap = policy, "skip"
				d.start(j)
				d.stop()
				time.Sleep(5*time.Hour + 10*time.Minute)
				d.start(j)
				if runs := d.runs(); len(runs) != want {
					t.Errorf("%d runs, want %d", len(runs), want)
				}
				rows, err := d.l.Occurrences(t.Context(), "hourly", start, time.Now(), 100)
				if err != nil || len(rows) != 5 {
					t.Errorf("%d instants have a row, want 5 (%v)", len(rows), err)
				}
			})
		})
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

func TestRunOnStart(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		j := job(t, "j", schedule.Options{Cron: "0 8 * * *"})
		j.RunOnStart = true
		d.start(j)
		if runs := d.runs(); len(runs) != 1 {
			t.Errorf("%d runs at the start", len(runs))
		}
	})
}

// Thousands of jobs that are due at once become rows, each one once.
func TestManyAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		var jobs []scheduler.Job
		for i := range 2_000 {
			jobs = append(jobs, job(t, fmt.Sprint("j", i), schedule.Options{Cron: "0 6 * * *"}))
		}
		d.start(jobs...)
		time.Sleep(7 * time.Hour)
		if runs := d.runs(); len(runs) != 2_000 {
			t.Errorf("%d runs", len(runs))
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
