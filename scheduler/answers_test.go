package scheduler_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/scheduler"
)

// A scheduler that goes round answers at once, and one that hangs does not: not while it is asked, and again once it goes on.
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
		time.Sleep(time.Minute) // it looks at the clock each half
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
