package dispatch_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
	"rouse/scheduler/dispatch"
)

// due records an occurrence of an hourly job, as the scheduler does.
func due(t *testing.T, l *ledger.Ledger, at time.Time, overlap domain.Overlap) runs.Occurrence {
	t.Helper()
	out, err := l.RecordDue(t.Context(), time.Now(), []ledger.Due{{Job: "j", Agent: "a", Source: "schedule", Nominal: at, Actual: at, Decision: domain.DecisionRun, Overlap: overlap}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// TestObstacleOfASchedule checks that a blocked job has one waiting run, with every overlap policy.
// Its owner is notified once, even if the daemon was killed in the meantime. After the obstacle is
// gone, the run is treated as after an outage.
func TestObstacleOfASchedule(t *testing.T) {
	for name, c := range map[string]struct {
		policy dispatch.Policy
		hours  int // hours for which it is blocked
		want   domain.Outcome
		says   string
	}{
		"made up for":            {dispatch.Policy{}, 3, domain.OutcomeSuccess, ""},
		"on_miss skip":           {dispatch.Policy{OnMiss: domain.MissSkip}, 3, domain.OutcomeSkipped, "on_miss is skip"},
		"start_deadline":         {dispatch.Policy{StartDeadline: time.Hour}, 3, domain.OutcomeSkipped, "longer than its start_deadline"},
		"window":                 {dispatch.Policy{CatchupWindow: 10 * time.Minute}, 3, domain.OutcomeSkipped, "more than the catch-up window of 10m0s"},
		"window of the latest":   {dispatch.Policy{CatchupWindow: time.Hour}, 3, domain.OutcomeSuccess, ""}, // half an hour ago
		"longer than any window": {dispatch.Policy{}, 30, domain.OutcomeSuccess, ""},                        // the latest occurrence is from today
	} {
		for _, overlap := range []domain.Overlap{domain.OverlapAllow, domain.OverlapQueueAll, domain.OverlapQueueOne, domain.OverlapSkip} {
			t.Run(name+"/"+string(overlap), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					var gone atomic.Bool
					var began atomic.Int64
					b.e.policy = func(string) dispatch.Policy { return c.policy }
					b.e.blocked = func(r ledger.Run) string {
						if r.Job == "j" && !gone.Load() {
							return "the secret x is not set"
						}
						return ""
					}
					work := func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
						began.Add(1)
						return success, nil
					}

					b.start(work)
					first := due(t, b.l, time.Now(), overlap)
					synctest.Wait()
					for hour := 1; hour <= c.hours; hour++ {
						time.Sleep(time.Hour)
						o := due(t, b.l, time.Now(), overlap)
						if o.Decision != domain.DecisionSkipped || !strings.Contains(o.Reason, "overlap: run 1 waits already: test: the secret x is not set") {
							t.Fatalf("the instant after %d hours: %+v", hour, o)
						}
						if hour == 1 { // simulate a kill
							b.stop()
							b.reopen()
							b.start(work)
						}
					}
					if other := b.run(enqueue(t, b.l, "a", "other")); other.Outcome != domain.OutcomeSuccess {
						t.Errorf("another job: %+v", other)
					}
					if r := b.run(first.Run); r.State != domain.StateQueued || r.Attempt != 0 || !r.Blocked.Now() || began.Load() != 1 {
						t.Fatalf("blocked: %+v, %d began", r, began.Load())
					}

					time.Sleep(30 * time.Minute)
					gone.Store(true)
					b.stop()
					b.start(work)
					r := b.run(first.Run)
					if r.Outcome != c.want || !strings.Contains(r.Error, c.says) || r.Blocked.Now() {
						t.Errorf("then: %+v, want %s (%s)", r, c.want, c.says)
					}
					if waited := r.Blocked.Until.Sub(r.Blocked.Since); waited < time.Duration(c.hours)*time.Hour {
						t.Errorf("it was blocked for %s", waited)
					}

					notices, err := b.l.Outbox.Pending(t.Context(), time.Now(), 100)
					if err != nil || len(notices) != 1 {
						t.Errorf("%d notices (%v)", len(notices), err)
					}
					if left, err := b.l.OpenObstacles(t.Context(), "test"); err != nil || len(left) != 0 {
						t.Errorf("it is said to be there still: %+v (%v)", left, err)
					}
				})
			})
		}
	}
}

// TestManyBlocked checks that ten thousand blocked runs do not delay other runs, and later start
// once each within the lanes.
func TestManyBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var gone atomic.Bool
		var on, most, began, asked atomic.Int64
		b.o.Runs, b.o.RunsPerAgent = 4, 4
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Concurrency: -1} }
		b.e.blocked = func(r ledger.Run) string {
			asked.Add(1)
			if r.Job == "j" && !gone.Load() {
				return "the secret x is not set"
			}
			return ""
		}

		runs := many(10_000)
		fill(t, b.l, runs, one("a", "j"))
		d := b.start(func(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			if r.Job == "j" {
				began.Add(1)
			}
			most.Store(max(most.Load(), on.Add(1)))
			defer on.Add(-1)
			return success, nil
		})
		synctest.Wait()
		if n, err := b.l.Runs.Blocked(t.Context()); err != nil || n != runs {
			t.Fatalf("%d are blocked (%v)", n, err)
		}
		if r := b.run(enqueue(t, b.l, "b", "other")); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("another job waits behind them: %+v", r)
		}

		gone.Store(true)
		d.Reconsider()
		for range 100 {
			time.Sleep(time.Minute)
			if synctest.Wait(); began.Load() == int64(runs) {
				break
			}
		}
		if n := asked.Load(); n > int64(12*runs) {
			t.Errorf("%d questions what is in the way of %d runs", n, runs)
		}
		if n, err := b.l.Runs.Blocked(t.Context()); err != nil || n != 0 || began.Load() != int64(runs) || most.Load() > 4 {
			t.Errorf("%d of %d began, %d at once; %d are blocked (%v)", began.Load(), runs, most.Load(), n, err)
		}
	})
}
