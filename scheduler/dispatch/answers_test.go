package dispatch_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/scheduler/dispatch"
)

// TestAnswers checks that Answers returns at once while the loop runs, returns an error while the
// loop hangs, and succeeds again after the loop has recovered.
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

// TestChangesBelowADeepQueueAreNotMissed checks that a run with an answer continues soon although a
// deep queue is not read again on each pass. That also applies if the answer arrives while the loop
// is woken for another reason.
func TestChangesBelowADeepQueueAreNotMissed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Resume: true, Concurrency: 100} }
		b.e.blocked = func(r ledger.Run) string {
			if r.Job == "held" {
				return "held"
			}
			return ""
		}
		d := b.start(func(_ context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
			if run.Job == "asks" && a.Number == 1 {
				return ledger.Result{Wait: &inbox.Question{Title: "asks", Message: "Go on?"}}, nil
			}
			return success, nil
		})

		const rounds = 30
		for range rounds {
			enqueue(t, b.l, "a", "asks")
		}
		for range 100 { // more than the length that is read again on each pass
			enqueue(t, b.l, "a", "held")
		}
		synctest.Wait()
		items, err := b.l.Inbox.List(t.Context())
		if err != nil || len(items) != rounds {
			t.Fatalf("%d questions (%v)", len(items), err)
		}

		for _, item := range items {
			var askers sync.WaitGroup
			var written atomic.Bool
			for range 8 {
				askers.Go(func() {
					for !written.Load() {
						if err := d.Answers(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			if _, err := b.l.Answer(t.Context(), item.ID, "yes"); err != nil {
				t.Fatal(err)
			}
			written.Store(true)
			askers.Wait()

			time.Sleep(time.Second)
			if r := b.run(item.Run); r.State != domain.StateFinished {
				t.Errorf("a second after its answer run %d is %s", r.ID, r.State)
			}
		}
	})
}
