package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
	"rouse/scheduler/dispatch"
)

// TestWaiting checks that waiting runs take no lane, survive a restart, and continue with their
// answers or end after 72 hours. Each causes one notice (OSA-18, UNI-09).
func TestWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const asking = 120 // more than are read at once
		b.e.notices = func(run ledger.Run, res ledger.Result) []ledger.Notice {
			what := string(res.Outcome)
			if res.Wait != nil {
				what = "asks"
			}
			return []ledger.Notice{{Run: run.ID, Channel: "desktop", Title: what, Key: fmt.Sprint(run.ID, what)}}
		}

		b.o.Runs, b.o.RunsPerAgent = 16, 16 // fewer than runs with questions
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Resume: true, Concurrency: 16} }
		ask := func(_ context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
			if run.Job == "asks" && a.Number == 1 {
				return ledger.Result{Wait: &inbox.Question{Title: "asks", Message: "Go on?"}}, nil
			}
			return success, nil
		}

		var ids []int64
		for range asking {
			ids = append(ids, enqueue(t, b.l, "a", "asks"))
		}

		b.start(ask)
		other := enqueue(t, b.l, "a", "other")
		if r := b.run(other); r.Outcome != domain.OutcomeSuccess {
			t.Fatalf("no lane is free: %+v", r)
		}

		b.stop()
		b.reopen()
		b.start(ask)
		items, err := b.l.Inbox.List(t.Context())
		if err != nil || len(items) != asking {
			t.Fatalf("%d items (%v)", len(items), err)
		}

		time.Sleep(71 * time.Hour)
		for _, i := range items[:10] {
			if _, err := b.l.Answer(t.Context(), i.ID, "yes"); err != nil {
				t.Fatal(err)
			}
		}

		time.Sleep(2 * time.Hour)
		synctest.Wait()
		ended := map[domain.Outcome]int{}
		for _, id := range ids {
			r := b.run(id)
			ended[r.Outcome]++
			if r.Outcome == domain.OutcomeTimeout && !strings.Contains(r.Error, "nobody answered within 72h0m0s: Go on?") {
				t.Fatalf("%+v", r)
			}
		}

		if ended[domain.OutcomeSuccess] != 10 || ended[domain.OutcomeTimeout] != asking-10 {
			t.Errorf("ended: %v", ended)
		}

		told := map[string]int{}
		notices, err := b.l.Outbox.Pending(t.Context(), time.Now(), 3*asking)
		if err != nil {
			t.Fatal(err)
		}

		for _, n := range notices {
			title, _, _ := strings.Cut(n.Title, " (") // without the number of failures of the incident
			told[title]++
		}

		if told["asks"] != asking || told["timeout"] != asking-10 {
			t.Errorf("told: %v", told)
		}
		if left, err := b.l.Inbox.List(t.Context()); err != nil || len(left) != 0 {
			t.Errorf("%d items are left (%v)", len(left), err)
		}
	})
}

// TestPostponed checks that a run waits for an unavailable model. It is tried again after 5, 15 and
// 30 minutes and then every hour, also after restarts. It causes one notice and does not use up its
// retries, until it is too late.
func TestPostponed(t *testing.T) {
	for name, c := range map[string]struct {
		policy dispatch.Policy
		until  time.Duration // end of the model's pause; 0 if it has none
		back   time.Duration // time at which the model is available again; 0 means never
		tries  int
		took   time.Duration
		want   domain.Outcome
	}{
		"back at once":    {dispatch.Policy{}, 0, time.Minute, 2, 5 * time.Minute, domain.OutcomeSuccess},
		"back by morning": {dispatch.Policy{}, 0, 7*time.Hour + time.Minute, 11, 7*time.Hour + 50*time.Minute, domain.OutcomeSuccess},
		"never back":      {dispatch.Policy{}, 0, 0, 27, 23*time.Hour + 50*time.Minute, domain.OutcomeError},
		"soon too late":   {dispatch.Policy{CatchupWindow: 30 * time.Minute}, 0, 0, 3, 20 * time.Minute, domain.OutcomeError},
		"must begin soon": {dispatch.Policy{StartDeadline: time.Hour}, 0, 0, 4, 50 * time.Minute, domain.OutcomeError},
		"while paused":    {dispatch.Policy{}, 2 * time.Hour, time.Hour, 2, 2 * time.Hour, domain.OutcomeSuccess},
		"with retries":    {dispatch.Policy{CatchupWindow: 30 * time.Minute, Attempts: 2, Backoff: time.Minute, On: []domain.Outcome{domain.OutcomeError}}, 0, 0, 4, 21 * time.Minute, domain.OutcomeError},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				begun := time.Now()
				tries := 0
				down := func(_ context.Context, run ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
					if tries++; c.back > 0 && time.Since(begun) >= c.back {
						return success, nil
					}

					p := &ledger.Postponement{}
					if c.until > 0 {
						p.Until = begun.Add(c.until)
					}
					if run.Postponements == 0 {
						p.Notices = []ledger.Notice{{Run: run.ID, Channel: "desktop", Title: "waits"}}
					}
					return ledger.Result{Outcome: domain.OutcomeError, Error: "the model server cannot be reached", Postpone: p}, nil
				}

				b.e.policy = func(string) dispatch.Policy { return c.policy }
				b.e.notices = func(run ledger.Run, res ledger.Result) []ledger.Notice {
					return []ledger.Notice{{Run: run.ID, Channel: "desktop", Title: string(res.Outcome)}}
				}
				b.start(down)
				id := enqueue(t, b.l, "a", "j")
				if r := b.run(id); !r.Postponed() || r.Postponements != 1 || !strings.Contains(r.Error, "cannot be reached") || !r.NotBefore.Equal(begun.Add(max(c.until, 5*time.Minute)).Truncate(time.Millisecond)) {
					t.Fatalf("after the first try: %+v", r)
				}

				b.stop()
				b.reopen()
				b.start(down)
				time.Sleep(30 * time.Hour)
				r := b.run(id)
				if took := r.FinishedAt.Sub(begun).Round(time.Minute); r.Outcome != c.want || tries != c.tries || took != c.took {
					t.Errorf("%s after %d tries and %s", r.Outcome, tries, took)
				}

				var told []string
				notices, err := b.l.Outbox.Pending(t.Context(), time.Now(), 100)
				for _, n := range notices {
					told = append(told, n.Title)
				}
				if want := "waits " + string(c.want); err != nil || strings.Join(told, " ") != want {
					t.Errorf("told %v, want %s (%v)", told, want, err)
				}
			})
		})
	}
}

// TestModelPauseEnds checks that a run starts at the end of its model's pause without a change of
// the ledger.
func TestModelPauseEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		until := time.Now().Add(3 * time.Hour)
		b.e.blocked = func(ledger.Run) string {
			if time.Now().Before(until) {
				return "the model m is paused"
			}
			return ""
		}
		if err := b.l.Pauses.PauseModel(t.Context(), pause.ModelPause{Model: "m", Since: time.Now(), Until: until, Tries: 1, Reason: "no credit"}); err != nil {
			t.Fatal(err)
		}

		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		id := enqueue(t, b.l, "a", "j")
		if r := b.run(id); r.State != domain.StateQueued {
			t.Fatalf("%+v", r)
		}

		time.Sleep(3*time.Hour + time.Second)
		if r := b.run(id); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("%+v", r)
		}
	})
}

// TestStartsBehind checks that the queued run of an occurrence starts after a run of its job that
// waits for a person. That also applies if it was queued before the other run began to wait. Its
// policy for missed occurrences then decides again.
func TestStartsBehind(t *testing.T) {
	for name, c := range map[string]struct {
		onMiss  domain.OnMiss
		waits   time.Duration
		outcome domain.Outcome
		why     string
	}{
		"soon":           {domain.MissSkip, 20 * time.Second, domain.OutcomeSuccess, ""},
		"late":           {domain.MissRunOnce, 2 * time.Hour, domain.OutcomeSuccess, ""},
		"late, and skip": {domain.MissSkip, 2 * time.Hour, domain.OutcomeSkipped, "blocked for 2h0m0s (overlap: run 1 of the job waits for an answer; see: rouse inbox); missed by 2h0m10s; on_miss is skip"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Resume: true, OnMiss: c.onMiss} }
				b.o.Runs, b.o.RunsPerAgent = 4, 4
				var ran []int64
				b.start(func(_ context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
					if a.Number == 1 && run.ID == 1 {
						time.Sleep(10 * time.Second)
						return ledger.Result{Wait: &inbox.Question{Title: "asks", Message: "Go on?", Options: []string{"yes"}}}, nil
					}
					ran = append(ran, run.ID)
					return success, nil
				})
				synctest.Wait()

				instant := func() int64 {
					at := time.Now().Truncate(time.Millisecond)
					due := ledger.Due{Job: "j", Agent: "a", Source: "cron", Nominal: at, Actual: at, Decision: domain.DecisionRun, Overlap: domain.OverlapQueueOne}
					recorded, err := b.l.RecordDue(t.Context(), at, []ledger.Due{due}, nil)
					if err != nil {
						t.Fatal(err)
					}
					return recorded[0].Run
				}
				first := instant()
				time.Sleep(time.Millisecond)
				second := instant() // waits for the lane of the first run
				if b.run(first).State != domain.StateRunning || b.run(second).State != domain.StateQueued {
					t.Fatalf("%+v, %+v", b.run(first), b.run(second))
				}

				time.Sleep(10 * time.Second)
				if r := b.run(second); r.State != domain.StateQueued || !r.Blocked.Now() || r.Blocked.By[0].Kind != ledger.ObstacleOverlap {
					t.Fatalf("beside the run that waits: %+v", r)
				}
				time.Sleep(c.waits)
				if _, err := b.l.Answer(t.Context(), 1, "yes"); err != nil {
					t.Fatal(err)
				}
				if r := b.run(second); r.Outcome != c.outcome || r.Error != c.why {
					t.Errorf("%s: %q", r.Outcome, r.Error)
				}
				if want := []int64{first, second}[:2-strings.Count(string(c.outcome), "skipped")]; fmt.Sprint(ran) != fmt.Sprint(want) {
					t.Errorf("ran %v, want %v", ran, want)
				}
			})
		})
	}
}

// TestMissedHold lets the machine sleep while jitter holds a run back. After the hold, the run's
// policy for missed occurrences decides again, either in the dispatcher or in the scheduler with a
// newer occurrence, which the run must not prevent.
func TestMissedHold(t *testing.T) {
	for name, c := range map[string]struct {
		onMiss domain.OnMiss
		slept  time.Duration
		newer  bool
		want   domain.Outcome
		why    string
	}{
		"skip":              {domain.MissSkip, 5 * time.Minute, false, domain.OutcomeSkipped, "missed by 4m25s (the machine slept, or its clock was set forward); on_miss is skip"},
		"skip, with newer":  {domain.MissSkip, 5 * time.Minute, true, domain.OutcomeSkipped, "missed by 4m25s (the machine slept, or its clock was set forward); on_miss is skip"},
		"run once":          {domain.MissRunOnce, 5 * time.Minute, false, domain.OutcomeSuccess, ""},
		"beyond the window": {domain.MissRunOnce, 25 * time.Hour, true, domain.OutcomeSkipped, "missed by 24h59m25s, more than the catch-up window of 24h0m0s"},
		"a moment":          {domain.MissSkip, 20 * time.Second, false, domain.OutcomeSuccess, ""},
		"no sleep":          {domain.MissSkip, 0, false, domain.OutcomeSuccess, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				var slept atomic.Int64
				now := func() time.Time { return time.Now().Add(time.Duration(slept.Load())).Truncate(time.Millisecond) }
				b.o.Now = now
				b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Resume: true, OnMiss: c.onMiss} }
				d := b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
				synctest.Wait()

				record := func(held time.Duration) runs.Occurrence {
					at := now()
					due := ledger.Due{Job: "j", Agent: "a", Source: "cron", Nominal: at, Actual: at.Add(held), Decision: domain.DecisionRun, Overlap: domain.OverlapSkip}
					if err := d.EndMissedHolds(t.Context(), at); err != nil {
						t.Fatal(err)
					}
					recorded, err := b.l.RecordDue(t.Context(), at, []ledger.Due{due}, nil)
					if err != nil {
						t.Fatal(err)
					}
					return recorded[0]
				}
				first := record(40 * time.Second)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				slept.Store(int64(c.slept))
				if c.newer {
					if o := record(0); o.Decision != domain.DecisionRun || b.run(o.Run).Outcome != domain.OutcomeSuccess {
						t.Errorf("the newer instant: %+v", o)
					}
				}
				time.Sleep(40 * time.Second) // the dispatcher checks again after at most 30 s
				if r := b.run(first.Run); r.Outcome != c.want || !c.newer && strings.ReplaceAll(r.Error, "4m50s", "4m25s") != c.why || c.newer && r.Error != c.why {
					t.Errorf("%s: %q, want %s: %q", r.Outcome, r.Error, c.want, c.why)
				}
			})
		})
	}
}
