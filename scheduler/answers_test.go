package scheduler_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/pause"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// Answers returns quickly while the loop runs. It fails while the loop hangs and works again
// afterwards.
func TestAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		var hangs atomic.Bool
		released := make(chan struct{})
		s, err := scheduler.New(scheduler.Options{Ledger: d.l, Now: func() time.Time {
			if hangs.Load() {
				<-released
			}
			return time.Now()
		}})
		if err != nil {
			t.Fatal(err)
		}
		d.begin(s, nil)
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			return s.Answers(ctx)
		}

		if err := ask(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		hangs.Store(true)
		// The loop checks the clock every 30 seconds.
		time.Sleep(time.Minute)
		began := time.Now()
		if err := ask(); err == nil || time.Since(began) != 10*time.Minute {
			t.Errorf("it hangs, and answered after %v: %v", time.Since(began), err)
		}

		hangs.Store(false)
		close(released)
		if err := ask(); err != nil {
			t.Error(err)
		}
		d.stop()
		if err := ask(); err == nil {
			t.Error("it answers though it is over")
		}
	})
}

// The loop notices the end of a pause even if it wakes for another reason at the same time. The
// next instant runs (OSA-78).
func TestChangesOfThePlanAreNotMissed(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		const rounds = 40
		d.start(job(t, "j", schedule.Options{Cron: "0 * * * *"}))
		time.Sleep(30 * time.Minute)

		for range rounds {
			if _, err := d.l.Pauses.Set(t.Context(), pause.Pause{Scope: pause.Job, Name: "j"}); err != nil {
				t.Fatal(err)
			}

			var askers sync.WaitGroup
			var written atomic.Bool
			for range 8 {
				askers.Go(func() {
					for !written.Load() {
						if err := d.s.Answers(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			if ended, err := d.l.Pauses.End(t.Context(), pause.Job, "j"); err != nil || !ended {
				t.Fatalf("%t %v", ended, err)
			}
			written.Store(true)
			askers.Wait()
			time.Sleep(time.Hour)
		}

		for _, o := range d.occurrences("j") {
			if o.Decision != domain.DecisionRun && strings.Contains(o.Reason, "paused") {
				t.Errorf("%s: %s, %s", o.Nominal, o.Decision, o.Reason)
			}
		}
	})
}
