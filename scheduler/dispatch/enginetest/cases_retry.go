package enginetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
	"rouse/scheduler/dispatch"
)

// retries checks that a failed run is tried again as often as its job allows, and not too early.
func retries(c *cluster) {
	// A node's clock differs from the clock of the database by up to a tenth of a second plus the
	// time of the query.
	wait, apart := 200*time.Millisecond, time.Duration(0)
	if c.shared {
		wait, apart = time.Second, 500*time.Millisecond
	}
	c.policy = func(string) dispatch.Policy {
		return dispatch.Policy{Attempts: 3, Backoff: wait, MaxBackoff: wait, On: []domain.Outcome{domain.OutcomeError}, Resume: true}
	}
	var mu sync.Mutex
	starts := map[int64][]time.Time{}
	c.execute = func(_ context.Context, _ string, run ledger.Run) ledger.Result {
		mu.Lock()
		defer mu.Unlock()
		starts[run.ID] = append(starts[run.ID], time.Now())
		if run.Job == "heals" && run.Attempt == 2 {
			return success("")
		}
		return ledger.Result{Outcome: domain.OutcomeError, Error: "flaky"}
	}

	c.start()
	for job, want := range map[string]struct {
		outcome  domain.Outcome
		attempts int
	}{"heals": {domain.OutcomeSuccess, 2}, "fails": {domain.OutcomeError, 3}} {
		id := c.enqueue("", job)
		if r := c.untilFinished(id); r.Outcome != want.outcome || r.Attempt != want.attempts || len(starts[id]) != want.attempts {
			c.t.Errorf("%s: %+v, %d starts", job, r, len(starts[id]))
		}
		for i := 1; i < len(starts[id]); i++ {
			// The wait is up to a quarter shorter, to spread runs that failed together.
			if took := starts[id][i].Sub(starts[id][i-1]); took < wait*3/4-apart || took > 30*time.Second {
				c.t.Errorf("%s: tried again after %s", job, took)
			}
		}
	}
}

// earlyRetry checks that a node cannot start the next attempt of a run too early, if it read the
// run before another node began it.
func earlyRetry(c *cluster) {
	if !c.shared {
		c.t.Skip("there are no nodes")
	}

	id := c.enqueue("", "flaky")
	start := func(name string) (*ledger.Ledger, ledger.Started) {
		l := c.open()
		if _, err := l.Nodes.Join(c.t.Context(), node.Node{Name: name, Host: "here", PID: 1}); err != nil {
			c.t.Fatal(err)
		}
		started, err := l.Start(c.t.Context(), ledger.Start{Run: id})
		if err != nil {
			c.t.Fatal(err)
		}
		return l, started[0]
	}

	first, begun := start("north")
	if begun.Err != nil {
		c.t.Fatal(begun.Err)
	}
	if err := first.Finish(c.t.Context(), begun.Attempt, ledger.Result{Outcome: domain.OutcomeError, Error: "flaky", RetryAt: first.Now().Add(time.Hour)}); err != nil {
		c.t.Fatal(err)
	}
	if _, early := start("south"); !errors.Is(early.Err, ledger.ErrNotClaimable) {
		c.t.Errorf("%+v", early)
	}
	if r := c.run(id); r.State != domain.StateWaiting || r.Attempt != 1 {
		c.t.Errorf("%+v", r)
	}
}
