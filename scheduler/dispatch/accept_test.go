package dispatch_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/scheduler/dispatch"
)

// counted counts the commits of the ledger from now on.
func (b *bench) counted() *atomic.Int64 {
	b.t.Helper()
	db, _, ok := b.l.File()
	if !ok {
		b.t.Fatal("the ledger has no file")
	}
	var commits atomic.Int64
	db.Observe(func() { commits.Add(1) }, func() {})
	return &commits
}

func drop(path, hash string) ledger.Request {
	return ledger.Request{Job: "in", Agent: "clerk", Trigger: domain.TriggerWatch, Claim: &ledger.Claim{Job: "in", Path: path, Hash: hash}}
}

// A run that finds its lanes free starts with the commit that accepts it; it takes another one where they are taken. What is on
// record is the same.
func TestStartsWithItsCommit(t *testing.T) {
	for name, test := range map[string]struct {
		before  []string                         // agents of runs that are on
		policy  func(job string) dispatch.Policy // nil: as many at once as are wanted
		blocked string
		pause   bool
		request ledger.Request
		commits int64 // until it is on, or waits
		state   domain.State
	}{
		"free":              {request: drop("/in/a", "1"), commits: 1, state: domain.StateRunning},
		"other agent on":    {before: []string{"other"}, request: drop("/in/a", "1"), commits: 1, state: domain.StateRunning},
		"agent's lane":      {before: []string{"clerk"}, request: drop("/in/a", "1"), commits: 1, state: domain.StateQueued},
		"daemon's lanes":    {before: []string{"a", "b"}, request: drop("/in/a", "1"), commits: 1, state: domain.StateQueued},
		"later":             {request: ledger.Request{Job: "in", Agent: "clerk", Trigger: domain.TriggerSelf, NotBefore: time.Now().Add(1e6 * time.Hour)}, commits: 1, state: domain.StateQueued},
		"blocked":           {blocked: "no model", request: drop("/in/a", "1"), commits: 2, state: domain.StateQueued}, // what blocks it is put on record
		"paused":            {pause: true, request: drop("/in/a", "1"), commits: 1, state: domain.StateQueued},
		"manual in a pause": {pause: true, request: ledger.Request{Job: "in", Agent: "clerk", Trigger: domain.TriggerManual}, commits: 1, state: domain.StateRunning},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.o.Runs, b.e.policy = 2, test.policy
				b.e.blocked = func(run ledger.Run) string {
					if run.Job == "in" {
						return test.blocked
					}
					return ""
				}
				d := b.start(func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
					<-ctx.Done()
					return ledger.Result{}, ctx.Err()
				})
				for _, agent := range test.before {
					enqueue(t, b.l, agent, "long/"+agent)
					synctest.Wait()
				}
				if test.pause {
					if _, err := b.l.SetPause(t.Context(), ledger.Pause{Scope: ledger.PauseJob, Name: "in", By: ledger.ByUser}); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()

				commits := b.counted()
				accepted, err := d.Enqueue(t.Context(), test.request)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := commits.Load(); got != test.commits {
					t.Errorf("%d commits, not %d", got, test.commits)
				}

				r := b.run(accepted[0].Run)
				if r.State != test.state || (r.Attempt == 1) != (test.state == domain.StateRunning) || (accepted[0].Begun != nil) != (r.Attempt == 1) {
					t.Errorf("it is %s, attempt %d, accepted as %+v", r.State, r.Attempt, accepted[0])
				}
				if test.state == domain.StateRunning {
					b.kinds(r.ID, "run.queued", "run.started")
				}
			})
		})
	}
}

// kinds wants the events of a run to be of these kinds.
func (b *bench) kinds(run int64, want ...string) {
	b.t.Helper()
	events, err := b.l.Events(b.t.Context(), ledger.EventFilter{Run: run})
	if err != nil || len(events) != len(want) {
		b.t.Fatalf("%v, %v", events, err)
	}
	for i, e := range events {
		if e.Kind != want[i] {
			b.t.Errorf("event %d is %s, not %s", i, e.Kind, want[i])
		}
	}
}

// A run that was not started with its commit takes a second one, once there is a lane.
func TestStartsWithASecondCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		release := make(chan struct{})
		d := b.start(func(ctx context.Context, run ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			if run.Job == "first" {
				<-release
			}
			return success, nil
		})
		if _, err := d.Enqueue(t.Context(), ledger.Request{Job: "first", Agent: "clerk", Trigger: domain.TriggerManual}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		accepted, err := d.Enqueue(t.Context(), drop("/in/a", "1"))
		if err != nil || accepted[0].Begun != nil {
			t.Fatal(accepted, err)
		}
		if r := b.run(accepted[0].Run); r.State != domain.StateQueued {
			t.Errorf("it is %s", r.State)
		}

		close(release)
		if r := b.run(accepted[0].Run); r.Outcome != domain.OutcomeSuccess || r.Attempt != 1 {
			t.Errorf("%s, attempt %d", r.Outcome, r.Attempt)
		}
		b.kinds(accepted[0].Run, "run.queued", "run.started", "run.finished")
	})
}

// The same file again, and a file whose claim is one too many, start nothing with their commits.
func TestNothingStartsForABlockedClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		d := b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		synctest.Wait()
		for i, want := range []bool{true, false} {
			accepted, err := d.Enqueue(t.Context(), drop("/in/a", "1"))
			if err != nil || (accepted[0].Begun != nil) != want || accepted[0].Blocked == want {
				t.Errorf("%d: %+v, %v", i, accepted, err)
			}
			synctest.Wait()
		}

		again := drop("/in/a", "2")
		again.Breaker = ledger.Breaker{MaxClaims: 2, Within: time.Hour}
		accepted, err := d.Enqueue(t.Context(), again)
		if err != nil || !accepted[0].BreakerTripped || accepted[0].Begun != nil {
			t.Errorf("%+v, %v", accepted, err)
		}
		if r := b.run(accepted[0].Run); r.State != domain.StateQueued {
			t.Errorf("of a job that was just paused it is %s", r.State)
		}

		// The lane that it had was given back.
		accepted, err = d.Enqueue(t.Context(), ledger.Request{Job: "other", Agent: "clerk", Trigger: domain.TriggerManual})
		if err != nil || accepted[0].Begun == nil {
			t.Errorf("%+v, %v", accepted, err)
		}
	})
}

// Of a burst as many start with the commit as there are lanes; the others follow in their order.
func TestBurstTakesTheLanesThereAre(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.o.Runs, b.o.RunsPerAgent = 3, 3
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Concurrency: -1} }
		var begun []int64
		gate := make(chan struct{})
		d := b.start(func(_ context.Context, run ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			<-gate
			begun = append(begun, run.ID) // one at a time: the gate is opened for one
			return success, nil
		})
		synctest.Wait()

		requests := make([]ledger.Request, 8)
		for i := range requests {
			requests[i] = drop("/in/"+string(rune('a'+i)), "1")
		}
		accepted, err := d.Enqueue(t.Context(), requests...)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range accepted {
			if (a.Begun != nil) != (i < 3) {
				t.Errorf("%d: %+v", i, a)
			}
		}
		for range requests {
			gate <- struct{}{}
			synctest.Wait()
		}
		if len(begun) != len(requests) {
			t.Errorf("%v", begun)
		}
	})
}

// The run of an instant starts with the commit that records it, and one that overlaps does not start at all.
func TestInstantStartsWithItsCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Concurrency: -1} }
		b.o.RunsPerAgent = 4
		d := b.start(func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			<-ctx.Done()
			return ledger.Result{}, ctx.Err()
		})
		synctest.Wait()

		for i, want := range []domain.Decision{domain.DecisionRun, domain.DecisionSkipped} {
			commits, now := b.counted(), time.Now().Add(time.Duration(i)*time.Second)
			recorded, err := d.RecordDue(t.Context(), now, []ledger.Due{{Job: "j", Agent: "clerk", Source: "cron", Nominal: now, Actual: now, Decision: domain.DecisionRun}}, nil)
			if err != nil || recorded[0].Decision != want || (recorded[0].Begun != nil) != (want == domain.DecisionRun) {
				t.Fatalf("%+v, %v", recorded, err)
			}
			synctest.Wait()
			if commits.Load() != 1 {
				t.Errorf("%d commits", commits.Load())
			}
		}
	})
}

// One that is to start later, by the jitter of its job, does not start with its commit.
func TestInstantStartsLater(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		d := b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		synctest.Wait()

		now := time.Now()
		recorded, err := d.RecordDue(t.Context(), now, []ledger.Due{{Job: "j", Agent: "clerk", Source: "cron", Nominal: now, Actual: now.Add(time.Minute), Decision: domain.DecisionRun}}, nil)
		if err != nil || recorded[0].Begun != nil {
			t.Fatalf("%+v, %v", recorded, err)
		}
		if r := b.run(recorded[0].Run); r.State != domain.StateQueued {
			t.Errorf("it is %s", r.State)
		}
		time.Sleep(time.Minute)
		if r := b.run(recorded[0].Run); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("a minute later: %+v", r)
		}
	})
}

// What is asked for while the dispatcher ends waits for the next one, and what began just before is parked as the rest is.
func TestNothingStartsWhileItEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		d := b.start(func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			<-ctx.Done()
			return ledger.Result{}, context.Cause(ctx)
		})
		synctest.Wait()
		first, err := d.Enqueue(t.Context(), drop("/in/a", "1"))
		if err != nil || first[0].Begun == nil {
			t.Fatal(first, err)
		}
		b.stop()
		if r := b.run(first[0].Run); r.WaitingFor != domain.WaitResume {
			t.Errorf("it is %s, waiting for %q", r.State, r.WaitingFor)
		}

		second, err := d.Enqueue(t.Context(), ledger.Request{Job: "other", Trigger: domain.TriggerManual})
		if err != nil || second[0].Begun != nil {
			t.Errorf("%+v, %v", second, err)
		}
	})
}
