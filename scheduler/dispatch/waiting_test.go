package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/scheduler/dispatch"
)

// Runs that wait take no lane, outlive a restart, and go on with their answers or
// end when 72 hours are over, one notice each (OSA-18, UNI-09).
func TestWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const asking = 120 // more than are looked at together
		b.e.notices = func(run ledger.Run, res ledger.Result) []ledger.Notice {
			what := string(res.Outcome)
			if res.Wait != nil {
				what = "asks"
			}
			return []ledger.Notice{{Run: run.ID, Channel: "desktop", Title: what, Key: fmt.Sprint(run.ID, what)}}
		}

		b.o.Runs, b.o.RunsPerAgent = 16, 16 // fewer than runs that ask
		b.e.policy = func(string) dispatch.Policy { return dispatch.Policy{Resume: true, Concurrency: 16} }
		ask := func(_ context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
			if run.Job == "asks" && a.Number == 1 {
				return ledger.Result{Wait: &ledger.Question{Title: "asks", Message: "Go on?"}}, nil
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
		items, err := b.l.Inbox(t.Context())
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
		notices, err := b.l.PendingNotices(t.Context(), time.Now(), 3*asking)
		if err != nil {
			t.Fatal(err)
		}

		for _, n := range notices {
			told[n.Title]++
		}

		if told["asks"] != asking || told["timeout"] != asking-10 {
			t.Errorf("told: %v", told)
		}
		if left, err := b.l.Inbox(t.Context()); err != nil || len(left) != 0 {
			t.Errorf("%d items are left (%v)", len(left), err)
		}
	})
}
