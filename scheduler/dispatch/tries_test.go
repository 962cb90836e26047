package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/storage/sqlite"
	"rouse/scheduler/dispatch"
)

// TestNewNeedsItsParts checks that New returns an error without a ledger or an executor.
func TestNewNeedsItsParts(t *testing.T) {
	for name, o := range map[string]dispatch.Options{"a ledger": {Executor: &executor{}}, "an executor": {Ledger: &ledger.Ledger{}}} {
		if d, err := dispatch.New(o); d != nil || err == nil {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestTriesThatCount checks that interrupted attempts and attempts that end with a question do not
// use up the run's tries.
func TestTriesThatCount(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(string) dispatch.Policy {
			return dispatch.Policy{Attempts: 2, Backoff: time.Second, On: []domain.Outcome{domain.OutcomeError}, Resume: true}
		}
		b.o.Drain = time.Nanosecond
		work := func(ctx context.Context, _ ledger.Run, a ledger.Attempt) (ledger.Result, error) {
			switch a.Number {
			case 1:
				<-ctx.Done()
				return ledger.Result{}, context.Cause(ctx)
			case 2, 3:
				return ledger.Result{Wait: &inbox.Question{Title: "asks", Message: "Go on?"}}, nil
			}
			return ledger.Result{Outcome: domain.OutcomeError, Error: "flaky"}, nil
		}
		b.start(work)
		id := enqueue(t, b.l, "a", "j")
		b.run(id)
		b.stop()
		b.start(work)
		for range 2 {
			synctest.Wait()
			items, err := b.l.Inbox.List(t.Context())
			if err != nil || len(items) != 1 {
				t.Fatalf("%d questions (%v)", len(items), err)
			}
			if _, err := b.l.Answer(t.Context(), items[0].ID, "yes"); err != nil {
				t.Fatal(err)
			}
		}

		if r := b.run(id); r.WaitingFor != domain.WaitRetry || r.Attempt != 4 {
			t.Errorf("after its first try: %+v", r)
		}
		time.Sleep(time.Minute)
		if r := b.run(id); r.Outcome != domain.OutcomeError || r.Attempt != 5 {
			t.Errorf("after its second try: %+v", r)
		}
	})
}

// TestPauseAfter checks that the configured number of failures in a row pauses a job. Other
// outcomes, and failures of jobs without the setting, do not.
func TestPauseAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(job string) dispatch.Policy {
			if job == "bounded" {
				return dispatch.Policy{PauseAfter: 2}
			}
			return dispatch.Policy{}
		}
		outcomes := []domain.Outcome{domain.OutcomeError, domain.OutcomeSuccess, domain.OutcomeError, domain.OutcomeError}
		next := map[string]int{}
		b.start(func(_ context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			next[r.Job]++
			return ledger.Result{Outcome: outcomes[next[r.Job]-1]}, nil
		})
		for i := range outcomes {
			for _, job := range []string{"bounded", "free"} {
				b.run(enqueue(t, b.l, "a", job))
				pauses, err := b.l.Pauses.List(t.Context(), time.Now())
				if paused := len(pauses) > 0; err != nil || paused != (i == len(outcomes)-1) || paused && pauses[0].Name != "bounded" {
					t.Errorf("after run %d of %s: %+v (%v)", i, job, pauses, err)
				}
			}
		}
	})
}

// TestQueueCannotBeRead checks that the queue is read again a second after an error, without
// another event.
func TestQueueCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		synctest.Wait()

		renameTable(t, b.l, "inbox", "elsewhere")
		id := enqueue(t, b.l, "a", "j")
		if r := b.run(id); r.State != domain.StateQueued {
			t.Fatalf("%+v", r)
		}
		renameTable(t, b.l, "elsewhere", "inbox")
		if r := b.run(id); r.State != domain.StateQueued {
			t.Errorf("nothing has told of it: %+v", r)
		}
		time.Sleep(time.Second)
		if r := b.run(id); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("a second later: %+v", r)
		}
	})
}

// TestUsualDrain checks that running attempts have half a minute to finish by default.
func TestUsualDrain(t *testing.T) {
	for after, want := range map[time.Duration]domain.State{29 * time.Second: domain.StateFinished, 31 * time.Second: domain.StateWaiting} {
		t.Run(after.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.start(func(ctx context.Context, _ ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
					select {
					case <-time.After(after):
						return success, nil
					case <-ctx.Done():
						return ledger.Result{}, context.Cause(ctx)
					}
				})
				id := enqueue(t, b.l, "a", "j")
				b.run(id)
				b.stop()
				if r := b.run(id); r.State != want {
					t.Errorf("%+v, not %s", r, want)
				}
			})
		})
	}
}

// TestBlockedBackfill checks that a run without a schedule starts after its obstacle is gone,
// regardless of the delay.
func TestBlockedBackfill(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{OnMiss: domain.MissSkip} }
		blocked := "no model"
		b.e.blocked = func(ledger.Run) string { return blocked }
		d := b.start(func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) { return success, nil })
		accepted, err := b.l.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerBackfill, ScheduledAt: time.Now().Add(-time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if r := b.run(accepted[0].Run); !r.Blocked.Now() {
			t.Fatalf("%+v", r)
		}
		time.Sleep(48 * time.Hour)
		blocked = ""
		d.Reconsider()
		r := b.run(accepted[0].Run)
		if r.Outcome != domain.OutcomeSuccess || strings.Contains(r.Error, "missed") {
			t.Errorf("%+v", r)
		}
		b.kinds(r.ID, "run.queued", "run.blocked", "run.unblocked", "run.started", "run.finished")
	})
}

// TestDeadlineWhileLanesAreFree checks that a run that waits for a lane of its agent is skipped at
// its deadline, although other lanes are free and no other event occurs. Runs that get a lane at
// that time start.
func TestDeadlineWhileLanesAreFree(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.e.policy = func(job string) dispatch.Policy {
			if job == "hurried" {
				return dispatch.Policy{StartDeadline: time.Minute}
			}
			return dispatch.Policy{}
		}
		work := func(ctx context.Context, r ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
			if r.Job == "long" {
				<-ctx.Done()
				return ledger.Result{}, context.Cause(ctx)
			}
			return success, nil
		}
		b.o.Drain = time.Nanosecond
		b.start(work)
		b.run(enqueue(t, b.l, "a", "long"))
		hurried := enqueue(t, b.l, "a", "hurried")
		time.Sleep(59 * time.Second)
		if r := b.run(hurried); r.State != domain.StateQueued {
			t.Errorf("a second before: %+v", r)
		}
		time.Sleep(2 * time.Second)
		if r := b.run(hurried); r.Outcome != domain.OutcomeSkipped {
			t.Errorf("a second after: %+v", r)
		}

		b.stop()
		late := enqueue(t, b.l, "b", "hurried")
		time.Sleep(2 * time.Minute)
		other := enqueue(t, b.l, "c", "other")
		b.start(work)
		if r := b.run(late); r.Outcome != domain.OutcomeSkipped {
			t.Errorf("while nobody ran: %+v", r)
		}
		if r := b.run(other); r.Outcome != domain.OutcomeSuccess {
			t.Errorf("beside it: %+v", r)
		}
	})
}

// TestRescueFails checks that a dispatcher with its own ledger ends if it cannot read the runs of a
// dead process. No run may start beside them.
func TestRescueFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		renameTable(t, b.l, "runs", "elsewhere")
		d, err := dispatch.New(dispatch.Options{Ledger: b.l, Executor: &executor{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "rescuing the runs that were on") {
			t.Errorf("%v", err)
		}
		renameTable(t, b.l, "elsewhere", "runs")
	})
}

// renameTable removes a table of the ledger, or restores it.
func renameTable(t *testing.T, l *ledger.Ledger, from, to string) {
	t.Helper()
	db, _, _ := l.File()
	if err := db.Writer().Do(t.Context(), func(tx *sqlite.Tx) error {
		_, err := tx.Exec("alter table " + from + " rename to " + to)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
