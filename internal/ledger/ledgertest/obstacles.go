package ledgertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/record"
)

// obstacles tests that obstacles are recorded with the runs they block. An obstacle causes one
// notice for all runs, and ends for all of them when the first run is released.
func obstacles(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	secret := ledger.Obstacle{Kind: "secret", Source: "secret/x", Text: "the secret x is not set", Where: "rouse.yaml:3"}
	hold := func(run int64, by ...ledger.Obstacle) ledger.Hold {
		h := ledger.Hold{Run: run, By: by, Notices: map[string][]ledger.Notice{}}
		for _, o := range by {
			h.Notices[o.Source] = []ledger.Notice{{Run: run, Channel: "desktop", Title: o.Text}}
		}
		return h
	}
	told := func(want int) {
		t.Helper()
		if n := len(must[[]ledger.Notice](t)(l.Outbox.Undelivered(ctx, 100))); n != want {
			t.Errorf("%d notices, want %d", n, want)
		}
	}
	blocked := func(want int) {
		t.Helper()
		if n := must[int](t)(l.Runs.Blocked(ctx)); n != want {
			t.Errorf("%d are blocked, want %d", n, want)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	one := enqueue(t, l, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerManual})[0].Run
	two := enqueue(t, l, ledger.Request{Job: "k", Agent: "a", Trigger: domain.TriggerManual})[0].Run
	do(l.HoldRuns(ctx, hold(one, secret), hold(two, secret), hold(4711, secret)))
	do(l.HoldRuns(ctx, hold(one, secret))) // a killed daemon reports it again
	told(1)
	blocked(2)
	r := must[ledger.Run](t)(l.Runs.Get(ctx, one))
	if !r.Blocked.Now() || record.ObstaclesText(r.Blocked.By) != "secret: the secret x is not set (rouse.yaml:3)" || r.Attempt != 0 {
		t.Errorf("%+v", r.Blocked)
	}
	if open := must[[]ledger.Obstacle](t)(l.OpenObstacles(ctx, "secret")); len(open) != 1 || open[0].Source != "secret/x" {
		t.Errorf("%+v", open)
	}
	if n := len(must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{Run: one}))); n != 2 { // queued and blocked
		t.Errorf("%d events", n)
	}

	// Another obstacle causes another notice, but the wait continues.
	folder := ledger.Obstacle{Kind: "folder", Source: "folder/f", Text: "f is not there"}
	do(l.HoldRuns(ctx, hold(one, secret, folder)))
	told(2)
	if again := must[ledger.Run](t)(l.Runs.Get(ctx, one)); !again.Blocked.Since.Equal(r.Blocked.Since) || len(again.Blocked.By) != 2 {
		t.Errorf("%+v", again.Blocked)
	}

	do(l.ReleaseRuns(ctx, two, two, 4711))
	blocked(1)
	if open := must[[]ledger.Obstacle](t)(l.OpenObstacles(ctx, "secret")); len(open) != 0 {
		t.Errorf("%+v", open)
	}
	do(l.HoldRuns(ctx, hold(two, secret))) // the obstacle comes and goes
	told(2)

	started, _, err := l.StartAttempt(ctx, one)
	do(err)
	do(l.HoldRuns(ctx, hold(one, secret))) // too late
	if r := must[ledger.Run](t)(l.Runs.Get(ctx, one)); r.State != domain.StateRunning || r.Blocked.Now() || r.Blocked.Until.IsZero() || started.ID != one {
		t.Errorf("%+v", r)
	}
	must[ledger.Run](t)(l.RequestCancel(ctx, two, "not needed"))
	blocked(0)
	if r := must[ledger.Run](t)(l.Runs.Get(ctx, two)); !strings.Contains(record.ObstaclesText(r.Blocked.By), "secret x") || r.Blocked.Now() {
		t.Errorf("a cancelled run: %+v", r.Blocked)
	}
}

// obstaclesAgain tests an obstacle that comes and goes. It causes at most one notice an hour, and
// each blocked period is recorded separately. When no run waits for it any more, it is not listed
// as open.
func obstaclesAgain(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	secret := ledger.Obstacle{Kind: "secret", Source: "secret/x", Text: "the secret x is not set"}
	hold := func(run int64, o ledger.Obstacle) {
		t.Helper()
		notices := map[string][]ledger.Notice{o.Source: {{Run: run, Channel: "desktop", Title: o.Text}}}
		ok(t, l.HoldRuns(ctx, ledger.Hold{Run: run, By: []ledger.Obstacle{o}, Notices: notices}))
	}

	run, begin := enqueue(t, l, manual("j"))[0].Run, time.Now()
	const ms = time.Millisecond
	for i, c := range []struct {
		at   time.Duration // since the first time
		told int
	}{{0, 1}, {time.Minute, 1}, {time.Hour, 1}, {time.Hour + ms, 2}, {2*time.Hour + ms, 2}} {
		time.Sleep(time.Until(begin.Add(c.at)))
		hold(run, secret)
		if told := len(must[[]ledger.Notice](t)(l.Outbox.Undelivered(ctx, 100))); told != c.told {
			t.Errorf("the %d. time it was told of %d times, want %d", i+1, told, c.told)
		}
		if n := must[int](t)(l.Runs.Blocked(ctx)); n != 1 {
			t.Errorf("the %d. time %d runs are blocked", i+1, n)
		}
		if b := get(t, l, run).Blocked; !b.Since.Equal(time.Now()) || !b.Now() {
			t.Errorf("the %d. time: %+v", i+1, b)
		}

		// Quiet does not make it a different obstacle.
		quiet := secret
		quiet.Quiet = true
		hold(run, quiet)

		time.Sleep(ms)
		ok(t, l.ReleaseRuns(ctx, run, run))
	}

	events := must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{Run: run}))
	if got := kinds(t, l, event.Filter{Run: run}); got != "run.queued"+strings.Repeat(" run.blocked run.unblocked", 5) {
		t.Errorf("events: %s", got)
	}
	var waited struct{ Seconds float64 }
	ok(t, json.Unmarshal(events[len(events)-1].Data, &waited))
	if waited.Seconds != 0.001 {
		t.Errorf("it waited %v s", waited.Seconds)
	}

	// While the obstacle stays, it causes no further notice.
	hold(run, secret)
	since := time.Now()
	time.Sleep(2 * time.Hour)
	hold(enqueue(t, l, manual("j"))[0].Run, secret)
	hold(run, secret)
	if told := len(must[[]ledger.Notice](t)(l.Outbox.Undelivered(ctx, 100))); told != 3 || !get(t, l, run).Blocked.Since.Equal(since) {
		t.Errorf("it was told of %d times while it stayed: %+v", told, get(t, l, run).Blocked)
	}

	// The waiting runs were cancelled, and the obstacle was not released.
	for _, r := range must[[]ledger.Run](t)(l.Runs.Unfinished(ctx)) {
		must[ledger.Run](t)(l.RequestCancel(ctx, r.ID, "not needed"))
	}
	folder := ledger.Obstacle{Kind: "folder", Source: "folder/f", Text: "f is not there"}
	hold(enqueue(t, l, manual("k"))[0].Run, folder)
	if open := must[[]ledger.Obstacle](t)(l.OpenObstacles(ctx, "secret")); len(open) != 0 {
		t.Errorf("there is no run that it is in the way of: %+v", open)
	}

	both := enqueue(t, l, manual("k"))[0].Run
	ok(t, l.HoldRuns(ctx, ledger.Hold{Run: both, By: []ledger.Obstacle{secret, folder}}))
	for _, want := range []int{1, 0} {
		for _, kind := range []string{"secret", "folder"} {
			if open := must[[]ledger.Obstacle](t)(l.OpenObstacles(ctx, kind)); len(open) != want {
				t.Errorf("%s: %+v", kind, open)
			}
		}
		ok(t, l.ReleaseRuns(ctx, both))
	}
}

// blockedOverlaps tests that a scheduled run is skipped if an earlier run of its job is blocked,
// with the same reason. Only the policy cancel_previous replaces the blocked run.
func blockedOverlaps(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for policy, want := range map[domain.Overlap]domain.Decision{
		domain.OverlapSkip: domain.DecisionSkipped, domain.OverlapQueueOne: domain.DecisionSkipped, domain.OverlapQueueAll: domain.DecisionSkipped,
		domain.OverlapAllow: domain.DecisionSkipped, domain.OverlapCancel: domain.DecisionRun,
	} {
		job := string(policy)
		first := recordDue(t, l, due(job, noon, policy)).Run
		ok(t, l.HoldRuns(ctx, ledger.Hold{Run: first, By: []ledger.Obstacle{{Kind: "secret", Source: "secret/x", Text: "the secret x is not set"}}}))

		o := recordDue(t, l, due(job, noon.Add(time.Minute), policy))
		reason := ""
		if want == domain.DecisionSkipped {
			reason = fmt.Sprintf("overlap: run %d waits already: secret: the secret x is not set", first)
		}
		if o.Decision != want || o.Reason != reason {
			t.Errorf("%s: %+v, want %s: %q", policy, o, want, reason)
		}
		if r := get(t, l, first); (r.Outcome == domain.OutcomeCancelled) != (policy == domain.OverlapCancel) {
			t.Errorf("%s: the first is %+v", policy, r)
		}
	}
}
