package ledgertest

import (
	"strings"
	"testing"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// obstacles: what keeps runs from starting is on record with them, told of once however many they are and however often it is said,
// and over for all of them with the first that it lets go.
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
		if n := len(must[[]ledger.Notice](t)(l.UndeliveredNotices(ctx, 100))); n != want {
			t.Errorf("%d notices, want %d", n, want)
		}
	}
	blocked := func(want int) {
		t.Helper()
		if n := must[int](t)(l.BlockedRuns(ctx)); n != want {
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
	do(l.HoldRuns(ctx, hold(one, secret))) // a daemon that was killed says it again
	told(1)
	blocked(2)
	r := must[ledger.Run](t)(l.Run(ctx, one))
	if !r.Blocked.Now() || ledger.ObstaclesText(r.Blocked.By) != "secret: the secret x is not set (rouse.yaml:3)" || r.Attempt != 0 {
		t.Errorf("%+v", r.Blocked)
	}
	if open := must[[]ledger.Obstacle](t)(l.OpenObstacles(ctx, "secret")); len(open) != 1 || open[0].Source != "secret/x" {
		t.Errorf("%+v", open)
	}
	if n := len(must[[]ledger.Event](t)(l.Events(ctx, ledger.EventFilter{Run: one}))); n != 2 { // queued, blocked
		t.Errorf("%d events", n)
	}

	// Another reason is another notice, and the same wait.
	folder := ledger.Obstacle{Kind: "folder", Source: "folder/f", Text: "f is not there"}
	do(l.HoldRuns(ctx, hold(one, secret, folder)))
	told(2)
	if again := must[ledger.Run](t)(l.Run(ctx, one)); !again.Blocked.Since.Equal(r.Blocked.Since) || len(again.Blocked.By) != 2 {
		t.Errorf("%+v", again.Blocked)
	}

	do(l.ReleaseRuns(ctx, two, two, 4711))
	blocked(1)
	if open := must[[]ledger.Obstacle](t)(l.OpenObstacles(ctx, "secret")); len(open) != 0 {
		t.Errorf("%+v", open)
	}
	do(l.HoldRuns(ctx, hold(two, secret))) // it comes and goes
	told(2)

	started, _, err := l.StartAttempt(ctx, one)
	do(err)
	do(l.HoldRuns(ctx, hold(one, secret))) // too late
	if r := must[ledger.Run](t)(l.Run(ctx, one)); r.State != domain.StateRunning || r.Blocked.Now() || r.Blocked.Until.IsZero() || started.ID != one {
		t.Errorf("%+v", r)
	}
	must[ledger.Run](t)(l.RequestCancel(ctx, two, "not needed"))
	blocked(0)
	if r := must[ledger.Run](t)(l.Run(ctx, two)); !strings.Contains(ledger.ObstaclesText(r.Blocked.By), "secret x") || r.Blocked.Now() {
		t.Errorf("a cancelled run: %+v", r.Blocked)
	}
}
