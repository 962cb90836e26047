package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agentdb/ledger"
)

// A dispatcher that goes round answers at once, and one that hangs does not: not while it is asked, and again once it goes on.
func TestAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		hang, released := make(chan struct{}), make(chan struct{})
		b.e.blocked = func(r ledger.Run) string {
			if r.Job == "hangs" {
				close(hang)
				<-released
			}
			return ""
		}
		d := b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			return d.Answers(ctx)
		}

		if err := ask(); err != nil {
			t.Error(err)
		}
		enqueue(t, b.l, "a", "hangs")
		<-hang
		began := time.Now()
		if err := ask(); err == nil || time.Since(began) != 10*time.Minute {
			t.Errorf("it hangs, and answered after %v: %v", time.Since(began), err)
		}

		b.e.blocked = nil
		close(released)
		synctest.Wait()
		if err := ask(); err != nil {
			t.Error(err)
		}
		b.stop()
		if err := ask(); err == nil {
			t.Error("it answers though it is over")
		}
	})
}
