package dispatch_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/pause"
	"rouse/scheduler/dispatch"
)

func drop(path, hash string) ledger.Request {
	return ledger.Request{Job: "in", Agent: "clerk", Trigger: domain.TriggerWatch, Claim: &claim.Claim{Job: "in", Path: path, Hash: hash}}
}

// kinds checks the kinds of the events of a run.
func (b *bench) kinds(run int64, want ...string) {
	b.t.Helper()
	events, err := b.l.Events.List(b.t.Context(), event.Filter{Run: run})
	if err != nil || len(events) != len(want) {
		b.t.Fatalf("%v, %v", events, err)
	}
	for i, e := range events {
		if e.Kind != want[i] {
			b.t.Errorf("event %d is %s, not %s", i, e.Kind, want[i])
		}
	}
}

// TestStartOfAnAcceptedRun checks which runs start when they are accepted while the dispatcher
// waits.
func TestStartOfAnAcceptedRun(t *testing.T) {
	for name, test := range map[string]struct {
		before  []string // agents with a running run
		blocked string
		pause   bool
		request ledger.Request
		state   domain.State
	}{
		"free":              {request: drop("/in/a", "1"), state: domain.StateRunning},
		"other agent on":    {before: []string{"other"}, request: drop("/in/a", "1"), state: domain.StateRunning},
		"agent's lane":      {before: []string{"clerk"}, request: drop("/in/a", "1"), state: domain.StateQueued},
		"daemon's lanes":    {before: []string{"a", "b"}, request: drop("/in/a", "1"), state: domain.StateQueued},
		"later":             {request: ledger.Request{Job: "in", Agent: "clerk", Trigger: domain.TriggerSelf, NotBefore: time.Now().Add(1e6 * time.Hour)}, state: domain.StateQueued},
		"blocked":           {blocked: "no model", request: drop("/in/a", "1"), state: domain.StateQueued},
		"paused":            {pause: true, request: drop("/in/a", "1"), state: domain.StateQueued},
		"manual in a pause": {pause: true, request: ledger.Request{Job: "in", Agent: "clerk", Trigger: domain.TriggerManual}, state: domain.StateRunning},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.o.Runs = 2
				b.e.blocked = func(run ledger.Run) string {
					if run.Job == "in" {
						return test.blocked
					}
					return ""
				}
				b.start(func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
					<-ctx.Done()
					return ledger.Result{}, ctx.Err()
				})
				for _, agent := range test.before {
					enqueue(t, b.l, agent, "long/"+agent)
				}
				if test.pause {
					if _, err := b.l.Pauses.Set(t.Context(), pause.Pause{Scope: pause.Job, Name: "in", By: ledger.ByUser}); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()

				accepted, err := b.l.Enqueue(t.Context(), test.request)
				if err != nil {
					t.Fatal(err)
				}
				r := b.run(accepted[0].Run)
				if r.State != test.state || (r.Attempt == 1) != (test.state == domain.StateRunning) {
					t.Errorf("it is %s, attempt %d", r.State, r.Attempt)
				}
				if test.state == domain.StateRunning {
					b.kinds(r.ID, "run.queued", "run.started")
				}
			})
		})
	}
}

// TestBlockedClaimsDoNotStart checks that a repeated file starts no run, and that the run of a
// claim that trips the breaker stays queued.
func TestBlockedClaimsDoNotStart(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		for i, blocked := range []bool{false, true} {
			accepted, err := b.l.Enqueue(t.Context(), drop("/in/a", "1"))
			if err != nil || accepted[0].Blocked != blocked {
				t.Errorf("%d: %+v, %v", i, accepted, err)
			}
			if r := b.run(accepted[0].Run); r.Outcome != domain.OutcomeSuccess || r.Attempt != 1 {
				t.Errorf("%d: %+v", i, r)
			}
		}

		again := drop("/in/a", "2")
		again.Breaker = pause.Breaker{MaxClaims: 2, Within: time.Hour}
		accepted, err := b.l.Enqueue(t.Context(), again)
		if err != nil || !accepted[0].BreakerTripped {
			t.Errorf("%+v, %v", accepted, err)
		}
		if r := b.run(accepted[0].Run); r.State != domain.StateQueued {
			t.Errorf("of a job that was just paused it is %s", r.State)
		}
	})
}

// TestProcessEndsBetweenTheCommits ends the process after a run was accepted and before it was
// started. The next process starts the run once, unless it was cancelled in the meantime.
func TestProcessEndsBetweenTheCommits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var started []int64
		execute := func(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			started = append(started, r.ID) // one at a time, because they have one agent
			return success, nil
		}
		b.start(execute)
		synctest.Wait()
		b.stop() // this process does not start runs that are committed later

		now := time.Now().Truncate(time.Millisecond)
		recorded, err := b.l.RecordDue(t.Context(), now, []ledger.Due{{Job: "j", Agent: "clerk", Source: "cron", Nominal: now, Actual: now, Decision: domain.DecisionRun}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := b.l.Enqueue(t.Context(), drop("/in/a", "1"), drop("/in/b", "1"), drop("/in/c", "1"))
		if err != nil {
			t.Fatal(err)
		}
		due, first, cancelled, stopped := recorded[0].Run, accepted[0].Run, accepted[1].Run, accepted[2].Run
		b.cancel(cancelled, "before the restart")
		b.reopen()
		b.cancel(stopped, "after the restart")

		for range 2 { // a second restart starts no run again
			b.start(execute)
			for _, id := range []int64{due, first} {
				if r := b.run(id); r.Outcome != domain.OutcomeSuccess || r.Attempt != 1 {
					t.Errorf("%+v", r)
				}
			}
			for _, id := range []int64{cancelled, stopped} {
				if r := b.run(id); r.Outcome != domain.OutcomeCancelled || r.Attempt != 0 {
					t.Errorf("%+v", r)
				}
			}
			b.stop()
			b.reopen()
		}
		if want := []int64{due, first}; !slices.Equal(started, want) {
			t.Errorf("started %v, want %v", started, want)
		}
	})
}

// TestCancelBetweenTheCommits cancels runs while they are about to start. Each run ends cancelled,
// and the attempts that started were notified.
func TestCancelBetweenTheCommits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.o.Runs, b.o.RunsPerAgent = 8, 8
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Concurrency: -1} }
		b.start(func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			<-ctx.Done()
			return ledger.Result{}, ctx.Err()
		})
		var owners sync.WaitGroup
		ids := make([]int64, 100)
		for i := range ids {
			owners.Go(func() {
				ids[i] = enqueue(t, b.l, "a", "j")
				b.cancel(ids[i], "enough")
			})
		}
		owners.Wait()
		for _, id := range ids {
			if r := b.run(id); r.Outcome != domain.OutcomeCancelled || r.Error != "enough" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestNothingStartsWhileItEnds checks that a run that is accepted while the dispatcher ends waits
// for the next dispatcher.
func TestNothingStartsWhileItEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.o.RunsPerAgent = 2
		b.o.Drain = time.Minute
		b.start(func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			<-ctx.Done()
			return ledger.Result{}, context.Cause(ctx)
		})
		first := enqueue(t, b.l, "clerk", "j")
		if r := b.run(first); r.State != domain.StateRunning {
			t.Fatalf("%+v", r)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); b.stop() }()
		synctest.Wait() // the dispatcher drains
		second := enqueue(t, b.l, "clerk", "other")
		<-ended
		if r := b.run(first); r.WaitingFor != domain.WaitResume {
			t.Errorf("it is %s, waiting for %q", r.State, r.WaitingFor)
		}
		if r := b.run(second); r.State != domain.StateQueued || r.Attempt != 0 {
			t.Errorf("%+v", r)
		}
	})
}
