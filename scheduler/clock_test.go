package scheduler_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/wake"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// startSet is like start, with a wall clock that is moved by offset.
func (d *daemon) startSet(offset *atomic.Int64, jobs ...scheduler.Job) {
	d.t.Helper()
	s, err := scheduler.New(scheduler.Options{Ledger: d.l, Logger: slog.New(slog.NewTextHandler(&d.log, nil)),
		Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }})
	if err != nil {
		d.t.Fatal(err)
	}
	d.begin(s, nil, jobs...)
}

// A daily job runs once a day for a month in which the clock is set forward. The simulation covers
// a whole year.
func TestAMonthOfADailyJob(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		zone, err := time.LoadLocation("America/New_York")
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Until(time.Date(2000, 3, 20, 12, 0, 0, 0, zone)))
		d.start(job(t, "daily", schedule.Options{Cron: "30 2 * * *", Timezone: "America/New_York"}))
		time.Sleep(30 * 24 * time.Hour)
		seen := map[string]bool{}
		for _, r := range d.runs() {
			if day := r.ScheduledAt.In(zone).Format(time.DateOnly); seen[day] {
				t.Errorf("%s ran twice", day)
			} else {
				seen[day] = true
			}
		}
		if len(seen) != 30 {
			t.Errorf("%d days ran, want 30", len(seen))
		}
	})
}

// After clock jumps in both directions, no instant runs twice, and a jump starts at most one run
// per schedule. ROUSE_TEST_JUMPS sets the number of jumps. The default is 100.
func TestClockJumps(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		jumps := 100
		if text := os.Getenv("ROUSE_TEST_JUMPS"); text != "" {
			var err error
			if jumps, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}

		random := rand.New(rand.NewPCG(1, 2))
		var offset atomic.Int64
		d.startSet(&offset, job(t, "five", schedule.Options{Cron: "*/5 * * * *"}), job(t, "night", schedule.Options{Cron: "30 2 * * *", Timezone: "Europe/Berlin"}))
		synctest.Wait()
		var last int64
		for range jumps {
			jump := time.Duration(random.Int64N(int64(8 * time.Hour)))
			if random.IntN(2) == 0 || time.Now().Add(time.Duration(offset.Load())-jump).Before(start) {
				offset.Add(int64(jump))
			} else {
				offset.Add(-int64(jump))
			}

			time.Sleep(30 * time.Second) // maximum delay until the jump is noticed
			synctest.Wait()
			runs, err := d.l.Runs.List(t.Context(), runs.Filter{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}

			fresh := 0
			for _, r := range runs {
				if r.ID > last {
					fresh++
				}
			}

			if fresh > 3 { // one per schedule, and one regular instant
				t.Fatalf("a storm of %d runs after a jump of %s", fresh, jump)
			}

			if len(runs) > 0 {
				last = runs[0].ID
			}
		}

		seen := map[string]bool{}
		for _, r := range d.runs() {
			key := fmt.Sprint(r.Job, r.ScheduledAt)
			if seen[key] {
				t.Errorf("%s fired twice", key)
			}
			seen[key] = true
		}
		if len(seen) < jumps/20 {
			t.Errorf("only %d runs: the clock jumped past everything", len(seen))
		}
	})
}

// A clock that was years ahead and is set back does not stop schedules. Instants that were recorded
// as missed run when they really come.
func TestAClockThatRanAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		var offset atomic.Int64
		d.startSet(&offset, job(t, "hourly", schedule.Options{Cron: "0 * * * *"}))
		time.Sleep(90 * time.Minute) // 01:00 has run
		offset.Store(int64(4 * time.Hour))
		time.Sleep(time.Minute) // 05:00 is caught up; 02:00 to 04:00 are missed
		offset.Store(0)
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		var got []string
		for _, r := range d.runs() {
			got = append(got, r.ScheduledAt.Format("15:04"))
		}
		if want := "01:00 05:00 02:00 03:00 04:00 06:00"; strings.Join(got, " ") != want {
			t.Errorf("fired %v, want %s", got, want)
		}
		if log := d.log.String(); !strings.Contains(log, "set forward") || !strings.Contains(log, "set back") {
			t.Errorf("the steps were not said:\n%s", log)
		}

		steps := 0
		events, err := d.l.Events.List(t.Context(), event.Filter{})
		if err != nil {
			t.Fatal(err)
		}

		for _, e := range events {
			if e.Kind == "clock.stepped" {
				steps++
			}
		}

		if steps != 2 {
			t.Errorf("%d steps in the record, want 2", steps)
		}
	})
}

// After a suspend, an instant that passed runs within 30 seconds, with the reason for the delay.
func TestSleptThrough(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		var offset atomic.Int64
		d.startSet(&offset, job(t, "j", schedule.Options{Cron: "0 3 * * *"}))
		time.Sleep(time.Hour + 7*time.Second)
		offset.Store(int64(8 * time.Hour)) // suspended from 01:00 to 09:00
		time.Sleep(30 * time.Second)
		runs := d.runs()
		if len(runs) != 1 || !runs[0].ScheduledAt.Equal(start.Add(3*time.Hour)) {
			t.Fatalf("runs: %+v", runs)
		}

		rows, err := d.l.Occurrences.List(t.Context(), "j", start, start.Add(24*time.Hour), 10)
		if err != nil || len(rows) != 1 || !strings.Contains(rows[0].Reason, "slept") {
			t.Errorf("rows: %+v (%v)", rows, err)
		}
	})
}

// Ten restarts around each due instant neither lose nor duplicate runs.
func TestTenRestartsAroundAnInstant(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		j := job(t, "j", schedule.Options{Cron: "* * * * *"})
		j.Overlap = "allow"
		for minute := range 5 {
			time.Sleep(time.Until(start.Add(time.Duration(minute+1) * time.Minute).Add(-5 * time.Millisecond)))
			for range 10 {
				d.start(j)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				d.stop()
			}
		}

		runs := d.runs()
		for i, r := range runs {
			if want := start.Add(time.Duration(i+1) * time.Minute); !r.ScheduledAt.Equal(want) {
				t.Errorf("run %d is for %s, want %s", i, r.ScheduledAt, want)
			}
		}

		if len(runs) != 5 {
			t.Errorf("%d runs in five minutes", len(runs))
		}
	})
}

// If the daemon ends between any two transactions, the next daemon neither loses nor duplicates
// runs.
func TestRestartAfterEachTransaction(t *testing.T) {
	for commits := range 24 {
		t.Run(fmt.Sprint("after ", commits), func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				j := job(t, "j", schedule.Options{Cron: "* * * * *"})
				j.Policy = schedule.Policy{OnMiss: domain.MissCatchup}
				slot := func() {
					if _, err := d.l.Wakes.Set(t.Context(), wake.Wake{Agent: "a", At: start.Add(5*time.Minute + 30*time.Second), OnMiss: domain.MissRunOnce, ScheduledBy: ledger.ByAgent}, wake.Usage{}); err != nil {
						t.Fatal(err)
					}
				}

				slot()
				d.startAgents([]string{"a"}, j)
				for range commits {
					<-d.l.Changed()
				}

				d.stop()
				time.Sleep(90 * time.Second)
				d.startAgents([]string{"a"}, j)
				time.Sleep(time.Until(start.Add(30*time.Minute + time.Second)))
				seen, wakes := map[time.Time]bool{}, 0
				for _, r := range d.runs() {
					if r.Trigger == domain.TriggerSelf {
						wakes++
						continue
					}

					if seen[r.ScheduledAt] {
						t.Errorf("%s fired twice", r.ScheduledAt)
					}
					seen[r.ScheduledAt] = true
				}
				if len(seen) != 30 || wakes != 1 {
					t.Errorf("%d instants ran, want 30; %d wakes, want 1", len(seen), wakes)
				}
			})
		})
	}
}

// Instants in a pause are skipped with a reason and not caught up. Later instants run even if no
// daemon was running at the end of the pause (OSA-78).
func TestPause(t *testing.T) {
	row := contract.Of(t, "OSA-78")
	skipped := domain.Decision(row.Quote("skipped"))
	for name, down := range map[string]bool{"daemon runs on": false, "daemon is down at the end of the pause": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				j := job(t, "j", schedule.Options{Cron: "0 * * * *"})
				d.start(j)
				time.Sleep(90 * time.Minute)
				if _, err := d.l.Pauses.Set(t.Context(), pause.Pause{Scope: row.Quote("job"), Name: "j", Until: time.Now().Add(3 * time.Hour), Reason: "holidays"}); err != nil {
					t.Fatal(err)
				}

				time.Sleep(time.Hour)
				if down {
					synctest.Wait()
					d.stop()
					// The pause ends at 04:30. After the sleep, it is 05:00.
					time.Sleep(150 * time.Minute)
					d.start(j)
				} else {
					time.Sleep(150 * time.Minute)
				}

				time.Sleep(45 * time.Minute)
				var got []string
				for _, o := range d.occurrences("j") {
					got = append(got, o.Nominal.Format("15 ")+string(o.Decision))
					if (o.Decision == skipped) != strings.Contains(o.Reason, "holidays") {
						t.Errorf("%s %s: %q", o.Nominal, o.Decision, o.Reason)
					}
				}
				if want := "05 run, 04 skipped, 03 skipped, 02 skipped, 01 run"; strings.Join(got, ", ") != want {
					t.Errorf("%v, want %s", got, want)
				}
			})
		})
	}

	t.Run("without an end, and resumed", func(t *testing.T) {
		inBubble(t, func(t *testing.T, d *daemon) {
			j := job(t, "j", schedule.Options{Cron: "0 * * * *"})
			d.start(j)
			time.Sleep(90 * time.Minute)
			if _, err := d.l.Pauses.Set(t.Context(), pause.Pause{Scope: row.Quote("agent"), Name: j.Agent}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if ended, err := d.l.Pauses.End(t.Context(), row.Quote("agent"), j.Agent); err != nil || !ended {
				t.Fatalf("%t %v", ended, err)
			}

			time.Sleep(time.Hour)
			var got []string
			for _, o := range d.occurrences("j") {
				got = append(got, o.Nominal.Format("15 ")+string(o.Decision))
			}
			if want := "03 run, 02 skipped, 01 run"; strings.Join(got, ", ") != want {
				t.Errorf("%v, want %s", got, want)
			}
		})
	})

	t.Run("everything, with a wake", func(t *testing.T) {
		inBubble(t, func(t *testing.T, d *daemon) {
			d.startAgents([]string{"once", "never"})
			for agent, miss := range map[string]domain.OnMiss{"once": "run_once", "never": "skip"} {
				if _, err := d.l.Wakes.Set(t.Context(), wake.Wake{Agent: agent, At: d.l.Now().Add(time.Hour), OnMiss: miss, ScheduledBy: ledger.ByAgent}, wake.Usage{}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := d.l.Pauses.Set(t.Context(), pause.Pause{Scope: row.Quote("all"), Until: time.Now().Add(2 * time.Hour)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(119 * time.Minute)
			if runs := d.runs(); len(runs) != 0 {
				t.Errorf("in the pause: %+v", runs)
			}
			time.Sleep(2 * time.Minute)
			runs := map[string]string{}
			for _, r := range d.runs() {
				runs[r.Agent] = string(r.State)
			}
			if runs["once"] != "queued" || runs["never"] == "queued" {
				t.Errorf("after the pause: %v", runs)
			}
		})
	})
}

// A wake fires once, at its time, even if it was planned while the loop was waiting. It survives a
// pause and is deleted if its agent may no longer plan wakes (OSA-70, OSA-75, OSA-78).
func TestWakes(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		plan := func(agent string, at time.Duration) {
			if _, err := d.l.Wakes.Set(t.Context(), wake.Wake{Agent: agent, At: d.l.Now().Add(at), Instructions: "go", OnMiss: domain.MissRunOnce, ScheduledBy: ledger.ByAgent}, wake.Usage{}); err != nil {
				t.Fatal(err)
			}
		}

		d.startAgents([]string{"a", "b"})
		time.Sleep(time.Second)
		plan("a", 12*time.Second)
		plan("b", time.Hour)
		time.Sleep(11 * time.Second)
		if runs := d.runs(); len(runs) != 0 {
			t.Fatalf("too early: %+v", runs)
		}

		time.Sleep(time.Second)
		if runs := d.runs(); len(runs) != 1 || runs[0].Agent != "a" || runs[0].Trigger != domain.TriggerSelf {
			t.Fatalf("runs: %+v", runs)
		}
		if _, err := d.l.Pauses.Set(t.Context(), pause.Pause{Scope: pause.All}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(2 * time.Hour)
		if runs := d.runs(); len(runs) != 1 {
			t.Fatalf("a slot fired in a pause: %+v", runs)
		}
		if _, err := d.l.Pauses.End(t.Context(), pause.All, ""); err != nil {
			t.Fatal(err)
		}
		if runs := d.runs(); len(runs) != 2 || runs[1].Agent != "b" {
			t.Errorf("after the pause: %+v", runs)
		}

		// Disabling self-scheduling deletes the planned wake.
		plan("a", time.Hour)
		plan("b", time.Hour)
		if err := d.s.Set(t.Context(), nil, []string{"a"}); err != nil {
			t.Fatal(err)
		}
		if slots, err := d.l.Wakes.List(t.Context()); err != nil || len(slots) != 1 || slots[0].Agent != "a" {
			t.Errorf("slots: %+v (%v)", slots, err)
		}
	})
}

// If recording takes longer than the interval of a schedule, the delay does not accumulate.
func TestASlowLedger(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		s, err := scheduler.New(scheduler.Options{Ledger: d.l, Now: func() time.Time {
			// Each reading of the clock takes time, and therefore each batch too.
			time.Sleep(300 * time.Millisecond)
			return time.Now()
		}})
		if err != nil {
			t.Fatal(err)
		}

		j := job(t, "j", schedule.Options{Every: "1s"})
		j.Policy.OnMiss = domain.MissCatchup
		d.begin(s, nil, j)
		time.Sleep(time.Minute)
		runs := d.runs()
		if len(runs) < 55 {
			t.Errorf("%d runs in a minute of seconds", len(runs))
		}

		for i, r := range runs {
			if late := r.QueuedAt.Sub(r.ScheduledAt); late > 5*time.Second {
				t.Fatalf("run %d was %s late", i, late)
			}
		}
	})
}

// Load does not write to the ledger, regardless of the configuration.
func TestLoadChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		kept := job(t, "kept", schedule.Options{Cron: "0 * * * *"})
		d.start(kept)
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		d.stop()
		before, err := d.l.Jobs(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		looks, err := scheduler.New(scheduler.Options{Ledger: d.l})
		if err != nil {
			t.Fatal(err)
		}
		if err := looks.Load(t.Context(), []scheduler.Job{job(t, "other", schedule.Options{Cron: "30 * * * *"})}); err != nil {
			t.Fatal(err)
		}

		after, err := d.l.Jobs(t.Context())
		if err != nil || fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("before %v, after %v (%v)", before, after, err)
		}
		if next := looks.Next("", 2, time.Now()); len(next) != 2 || next[0].Job != "other" {
			t.Errorf("next: %+v", next)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := looks.Load(ctx, nil); err == nil {
			t.Error("no error from a ledger that was not asked")
		}
	})
}

// A job with a window runs once in each window, at a time that depends on its name and the date.
// Restarts of the daemon do not change that.
func TestWindowOverRestarts(t *testing.T) {
	t.Parallel()
	for _, restarts := range [][]time.Duration{nil, {time.Minute}, {time.Hour, 2 * time.Hour, 150 * time.Minute}, {5 * time.Hour}} {
		t.Run(fmt.Sprint(restarts), func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				s, err := schedule.Parse(schedule.Options{Window: "02:00-05:00", Job: "nightly"})
				if err != nil {
					t.Fatal(err)
				}
				job := scheduler.Job{Name: "nightly", Agent: "a", Schedules: []*schedule.Schedule{s}}
				opens := start.Add(2 * time.Hour)
				d.start(job)
				time.Sleep(opens.Sub(start))
				for _, at := range restarts {
					d.stop()
					time.Sleep(time.Until(opens.Add(at)))
					d.start(job)
				}
				time.Sleep(time.Until(start.Add(20 * time.Hour)))

				runs := d.runs()
				if len(runs) != 1 || !runs[0].ScheduledAt.Equal(opens) || !runs[0].NotBefore.IsZero() && !runs[0].NotBefore.Equal(s.Actual(opens)) {
					t.Errorf("runs: %+v, the moment is %s", runs, s.Actual(opens))
				}
			})
		})
	}
}
