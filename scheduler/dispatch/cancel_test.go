package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/scheduler/dispatch"
)

// retrying returns a policy that retries every failed attempt a minute later.
func retrying(string) dispatch.Policy {
	return dispatch.Policy{Attempts: 5, Backoff: time.Minute, On: []domain.Outcome{domain.OutcomeError}, Resume: true}
}

func (b *bench) cancel(id int64, reason string) {
	b.t.Helper()
	if _, err := b.l.RequestCancel(b.t.Context(), id, reason); err != nil {
		b.t.Fatal(err)
	}
}

func TestCancelAQueuedRun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		executed := map[int64]bool{}
		b.start(func(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			executed[r.ID] = true
			time.Sleep(time.Minute)
			return success, nil
		})

		first, second, third := enqueue(t, b.l, "a", "j"), enqueue(t, b.l, "a", "j"), enqueue(t, b.l, "a", "j")
		b.run(first)
		b.cancel(second, "not needed")
		if r := b.run(second); r.Outcome != domain.OutcomeCancelled || r.Error != "not needed" {
			t.Errorf("run: %+v", r)
		}

		time.Sleep(3 * time.Minute)
		if r := b.run(third); r.Outcome != domain.OutcomeSuccess || executed[second] {
			t.Errorf("the next in its lane: %+v; the cancelled one was executed: %v", r, executed[second])
		}
	})
}

// TestACancelledAttemptIsNotTriedAgain checks that a cancelled run is not tried again, regardless
// of the executor's result.
func TestACancelledAttemptIsNotTriedAgain(t *testing.T) {
	for name, policy := range map[string]func(string) dispatch.Policy{"retries": retrying, "no retries": nil} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.e.policy = policy
				b.start(func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
					<-ctx.Done()
					return ledger.Result{}, ctx.Err()
				})
				id := enqueue(t, b.l, "a", "j")
				b.run(id)
				b.cancel(id, "enough")
				if r := b.run(id); r.Outcome != domain.OutcomeCancelled || r.Error != "enough" {
					t.Errorf("run: %+v", r)
				}
			})
		})
	}
}

// TestCancelMeetsAFailure checks that a run that fails while it is being cancelled is not tried
// again.
func TestCancelMeetsAFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = retrying
		b.start(func(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			b.cancel(r.ID, "enough")
			return ledger.Result{Outcome: domain.OutcomeError, Error: "flaky"}, nil
		})
		id := enqueue(t, b.l, "a", "j")
		if r := b.run(id); r.Outcome != domain.OutcomeCancelled || r.Attempt != 1 {
			t.Errorf("run: %+v", r)
		}
	})
}

// TestARetriedCancellationIsForgotten checks that a run that was cancelled once and is run again is
// parked like any other run.
func TestARetriedCancellationIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy, b.o.Drain = retrying, time.Nanosecond
		hang := func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			<-ctx.Done()
			return ledger.Result{Outcome: domain.OutcomeCancelled}, nil
		}
		b.start(hang)
		id := enqueue(t, b.l, "a", "j")
		b.run(id)
		b.cancel(id, "enough")
		b.run(id)
		if _, err := b.l.Retry(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if r := b.run(id); r.State != domain.StateRunning {
			t.Fatalf("after the retry: %+v", r)
		}

		b.stop()
		if r := b.run(id); r.State != domain.StateWaiting || r.WaitingFor != domain.WaitResume {
			t.Errorf("after the drain: %+v", r)
		}
	})
}

// TestRetryOfAWaitingRun checks that a run that waits for its next attempt starts at once if its
// owner retries it.
func TestRetryOfAWaitingRun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		failed := false
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
			if !failed {
				failed = true
				return ledger.Result{Outcome: domain.OutcomeError, RetryAt: time.Now().Add(time.Hour)}, nil
			}
			return ledger.Result{Outcome: domain.OutcomeSuccess}, nil
		})
		id, begin := enqueue(t, b.l, "a", "j"), time.Now()
		if r := b.run(id); !r.WaitsForRetry() {
			t.Fatalf("%+v", r)
		}
		if _, err := b.l.Retry(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if r := b.run(id); r.Outcome != domain.OutcomeSuccess || time.Since(begin) > time.Minute {
			t.Errorf("after %s: %+v", time.Since(begin), r)
		}
		b.stop()
	})
}

// TestCancelDuringTheDrain checks that a run can be cancelled while the daemon waits for its last
// runs.
func TestCancelDuringTheDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.o.Drain = time.Hour
		b.start(func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			<-ctx.Done()
			return ledger.Result{Outcome: domain.OutcomeCancelled}, nil
		})
		id := enqueue(t, b.l, "a", "j")
		b.run(id)
		begin := time.Now()
		go func() {
			time.Sleep(time.Minute)
			b.cancel(id, "do not wait for it")
		}()
		b.stop()
		if r := b.run(id); r.Outcome != domain.OutcomeCancelled || time.Since(begin) > 2*time.Minute {
			t.Errorf("after %s: %+v", time.Since(begin), r)
		}
	})
}

// TestCancelMeetsTheDrain checks that a run does not start again if its attempt was parked after a
// request to cancel it.
func TestCancelMeetsTheDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy, b.o.Drain = retrying, time.Nanosecond
		starts := 0
		hang := func(ctx context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			starts++
			<-ctx.Done()
			b.cancel(r.ID, "enough")
			return ledger.Result{Outcome: domain.OutcomeInterrupted}, nil
		}

		b.start(hang)
		id := enqueue(t, b.l, "a", "j")
		b.run(id)
		b.stop()
		b.start(hang)
		if r := b.run(id); r.Outcome != domain.OutcomeCancelled || starts != 1 {
			t.Errorf("%d starts: %+v", starts, r)
		}
	})
}

// TestNoOutcome checks that a run fails if its executor returns no outcome.
func TestNoOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return ledger.Result{}, nil })
		if r := b.run(enqueue(t, b.l, "a", "j")); r.Outcome != domain.OutcomeError || !strings.Contains(r.Error, "outcome") {
			t.Errorf("run: %+v", r)
		}
	})
}
