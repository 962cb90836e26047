package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/wake"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// NextStart ignores excluded and paused instants. It returns zero if the job is paused
// indefinitely.
func TestNextStart(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		j := job(t, "daily", schedule.Options{Cron: "0 8 * * *", Exclude: []string{"2000-01-01", "2000-01-03"}})
		d.start(j)
		first := func() string { return d.s.NextStart("daily", time.Now()).Format("2006-01-02 15:04") }
		if got := first(); got != "2000-01-02 08:00" {
			t.Errorf("%s", got)
		}

		set := func(p pause.Pause) {
			t.Helper()
			if _, err := d.l.Pauses.Set(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			d.runs() // until the scheduler has noticed
		}

		set(pause.Pause{Scope: pause.Job, Name: "daily", Until: start.Add(33 * time.Hour)})
		set(pause.Pause{Scope: pause.Agent, Name: "a", Until: start.Add(4*24*time.Hour + 8*time.Hour)})
		if got := first(); got != "2000-01-05 08:00" {
			t.Errorf("when a pause ends at an instant, that instant runs: %s", got)
		}

		set(pause.Pause{Scope: pause.All})
		if got := d.s.NextStart("daily", time.Now()); !got.IsZero() {
			t.Errorf("paused for good: %s", got)
		}
		if got := d.s.NextStart("nobody", time.Now()); !got.IsZero() {
			t.Errorf("no such job: %s", got)
		}
	})
}

// JobStatus returns the decisions that are made later.
func TestJobStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		j := job(t, "hourly", schedule.Options{Every: "1h"})
		d.start(j)
		d.stop()
		time.Sleep(3*time.Hour + time.Minute)
		s, err := scheduler.New(scheduler.Options{Ledger: d.l})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Set(t.Context(), []scheduler.Job{j}, nil); err != nil {
			t.Fatal(err)
		}

		st, ok := s.JobStatus("hourly")
		if !ok || !st.Watermark.Equal(start) {
			t.Fatalf("%t, dealt with up to %s", ok, st.Watermark)
		}

		var want []string
		for _, due := range st.Due {
			want = append(want, fmt.Sprint(due.Nominal, due.Decision, due.Reason))
		}

		if rows := d.occurrences("hourly"); len(rows) != 0 {
			t.Fatalf("asking wrote %v", rows)
		}

		d.start(j)
		d.runs()
		var got []string
		for _, o := range d.occurrences("hourly") {
			got = append(got, fmt.Sprint(o.Nominal, o.Decision, o.Reason))
		}

		slices.Reverse(got)
		if len(got) != 3 || !slices.Equal(got, want) {
			t.Errorf("%v, but it was said to be %v", got, want)
		}
		if st, _ := d.s.JobStatus("hourly"); len(st.Due) != 0 {
			t.Errorf("still undecided: %v", st.Due)
		}
		if _, ok := s.JobStatus("nobody"); ok {
			t.Error("no such job stands anywhere")
		}
	})
}

// A wake is listed until it fires. If it was due in a pause, it waits for the end of the pause.
func TestNextOfAPausedWake(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		if _, err := d.l.Wakes.Set(t.Context(), wake.Wake{Agent: "a", At: d.l.Now().Add(time.Hour), Instructions: "x", ScheduledBy: ledger.ByAgent}, wake.Usage{}); err != nil {
			t.Fatal(err)
		}

		if _, err := d.l.Pauses.Set(t.Context(), pause.Pause{Scope: pause.Agent, Name: "a", Until: start.Add(3 * time.Hour)}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(2 * time.Hour)
		s, err := scheduler.New(scheduler.Options{Ledger: d.l})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Load(t.Context(), nil); err != nil {
			t.Fatal(err)
		}

		next := s.Next("", 5, time.Now())
		if len(next) != 1 || next[0].Source != scheduler.SourceWake || !next[0].Nominal.Equal(start.Add(time.Hour)) || !next[0].Actual.Equal(start.Add(3*time.Hour)) ||
			!strings.HasPrefix(next[0].Reason, "waits for the end of the pause: paused: agent a") {
			t.Errorf("%+v", next)
		}
	})
}

// Load finds nothing due for a job that no daemon has recorded.
func TestLoadOfANewJob(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		time.Sleep(time.Hour + 1500*time.Microsecond)
		s, err := scheduler.New(scheduler.Options{Ledger: d.l})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Load(t.Context(), []scheduler.Job{job(t, "new", schedule.Options{Every: "2s"})}); err != nil {
			t.Fatal(err)
		}
		if st, ok := s.JobStatus("new"); !ok || len(st.Due) != 0 {
			t.Errorf("%t %+v", ok, st.Due)
		}
	})
}
