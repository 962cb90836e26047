package ledgertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/budget"
	"rouse/internal/ledger/steps"
)

const today = "2026-11-21"

// spent returns the usage in a day or a month.
func spent(t *testing.T, l *ledger.Ledger, period, scope, name string) budget.Spending {
	t.Helper()
	for _, s := range must[[]budget.Spending](t)(l.Budget.SpendingOn(t.Context(), period)) {
		if s.Scope == scope && s.Name == name {
			return s
		}
	}
	return budget.Spending{Day: period, Scope: scope, Name: name}
}

// begin starts a run of a job with its first step.
func begin(t *testing.T, l *ledger.Ledger, job string) ledger.Attempt {
	t.Helper()
	a := start(t, l, enqueue(t, l, manual(job))[0].Run)
	ok(t, l.Steps.StartStep(t.Context(), a, steps.Step{Number: 1, StartedAt: time.Now()}))
	return a
}

func reservation(cost, tokens int64) budget.Reservation {
	return budget.Reservation{Step: 1, Day: today, Agent: "a", Job: "j", Usage: ledger.Usage{TokensIn: tokens, CostMicroUSD: cost}}
}

// budgets tests that a reservation counts in all sums and against all limits until it is settled.
func budgets(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := begin(t, l, "j")
	r := reservation(60, 600)
	r.DaemonLimit = budget.Limit{CostMicroUSD: 100}
	id, full, err := l.Budget.Reserve(ctx, a, r)
	ok(t, err)
	if full != nil {
		t.Fatalf("no room in an empty day: %+v", full)
	}
	if _, full, err := l.Budget.Reserve(ctx, a, r); err != nil || full == nil || full.Scope != budget.ScopeDaemon || !full.Money || full.ReservedMicroUSD != 60 || full.Limit.CostMicroUSD != 100 {
		t.Fatalf("120 of 100 were reserved: %+v (%v)", full, err)
	}

	sums := must[[]budget.Spending](t)(l.Budget.Settle(ctx, id, ledger.Usage{TokensIn: 30, TokensOut: 4, TokensCached: 10, CostMicroUSD: 25}, ""))
	if len(sums) != 6 { // sums of the day and of its month
		t.Fatalf("sums: %+v", sums)
	}

	for _, s := range sums {
		if s.Tokens != 34 || s.CostMicroUSD != 25 || s.ReservedTokens != 0 || s.ReservedMicroUSD != 0 {
			t.Errorf("settled: %+v", s)
		}
	}

	// The reservation is already settled and must not be counted twice.
	if again, err := l.Budget.Settle(ctx, id, ledger.Usage{CostMicroUSD: 25}, ""); err != nil || again != nil {
		t.Errorf("settled twice: %+v (%v)", again, err)
	}
	if steps := must[[]steps.Step](t)(l.Steps.List(ctx, a.Run)); steps[0].Usage != (ledger.Usage{TokensIn: 30, TokensOut: 4, TokensCached: 10, CostMicroUSD: 25}) {
		t.Errorf("the step has not taken it: %+v", steps[0].Usage)
	}

	// An implausible usage neither returns money nor uses up the budget. The reservation is counted
	// as an estimate instead.
	for _, used := range []ledger.Usage{{CostMicroUSD: -50}, {TokensIn: -1}, {CostMicroUSD: 1 << 62}, {TokensIn: 5, TokensOut: 1 << 40}} {
		free := reservation(60, 600)
		free.Day = "2026-12-01"
		before := spent(t, l, free.Day, budget.ScopeDaemon, "")
		id, full, err := l.Budget.Reserve(ctx, a, free)
		if err != nil || full != nil {
			t.Fatalf("%+v (%v)", full, err)
		}
		must[[]budget.Spending](t)(l.Budget.Settle(ctx, id, used, ""))
		after := spent(t, l, free.Day, budget.ScopeDaemon, "")
		if after.CostMicroUSD-before.CostMicroUSD != 60 || after.EstimatedMicroUSD-before.EstimatedMicroUSD != 60 || after.Tokens-before.Tokens != 600 || !strings.Contains(after.EstimatedWhy, "an impossible use was reported") {
			t.Errorf("%+v: %+v, before %+v", used, after, before)
		}
	}

	budgetLimits(t, l, a)
	r = reservation(0, 1)
	r.DaemonLimit.CostMicroUSD = 1
	if _, full, err := l.Budget.Reserve(ctx, a, r); err != nil || full != nil {
		t.Errorf("a call that costs nothing found no room: %+v (%v)", full, err)
	}

	// Sums are kept per day. A run without a job is not part of the sums of a job.
	r = reservation(60, 600)
	r.Day, r.Job, r.DaemonLimit.CostMicroUSD = "2026-11-22", "", 60
	if _, full, err := l.Budget.Reserve(ctx, a, r); err != nil || full != nil {
		t.Errorf("the next day is not empty: %+v (%v)", full, err)
	}
	if list := must[[]budget.Spending](t)(l.Budget.SpendingOn(ctx, "2026-11-22")); len(list) != 2 || list[0].Scope != budget.ScopeAgent || list[1].Scope != budget.ScopeDaemon {
		t.Errorf("of no job: %+v", list)
	}

	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	if _, _, err := l.Budget.Reserve(ctx, a, reservation(1, 1)); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("an attempt that has ended may spend: %v", err)
	}
}

// budgetLimits tests each limit with one unit too many, after 25 micro-USD and 34 tokens were used.
func budgetLimits(t *testing.T, l *ledger.Ledger, a ledger.Attempt) {
	t.Helper()
	for what, c := range map[string]struct {
		set   func(*budget.Reservation)
		scope string
		money bool
	}{
		"agent's money":  {func(r *budget.Reservation) { r.AgentLimit.CostMicroUSD = 84 }, budget.ScopeAgent, true},
		"job's money":    {func(r *budget.Reservation) { r.JobLimit.CostMicroUSD = 84 }, budget.ScopeJob, true},
		"daemon's money": {func(r *budget.Reservation) { r.DaemonLimit.CostMicroUSD = 84 }, budget.ScopeDaemon, true},
		"agent's tokens": {func(r *budget.Reservation) { r.AgentLimit.Tokens = 633 }, budget.ScopeAgent, false},
		"job's tokens":   {func(r *budget.Reservation) { r.JobLimit.Tokens = 633 }, budget.ScopeJob, false},
	} {
		r := reservation(60, 600)
		c.set(&r)
		if _, full, err := l.Budget.Reserve(t.Context(), a, r); err != nil || full == nil || full.Scope != c.scope || full.Money != c.money {
			t.Errorf("%s: %+v (%v)", what, full, err)
		}
	}
}

// budgetCrash tests that a reservation stays counted if its process dies. It is added to the run
// when the attempt is given up.
func budgetCrash(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := begin(t, l, "j")
	r := reservation(60, 600)
	r.JobLimit.CostMicroUSD = 100
	id, _, err := l.Budget.Reserve(ctx, a, r)
	ok(t, err)
	ok(t, l.Close())
	l = open(t)
	if s := spent(t, l, today, budget.ScopeJob, "j"); s.ReservedMicroUSD != 60 || s.CostMicroUSD != 0 {
		t.Errorf("after the crash: %+v", s)
	}
	if _, full, err := l.Budget.Reserve(ctx, a, r); err != nil || full == nil {
		t.Errorf("it is not counted: %+v (%v)", full, err)
	}

	ok(t, l.Interrupt(ctx, a, "killed", nil))
	if s := spent(t, l, today, budget.ScopeJob, "j"); s.ReservedMicroUSD != 0 || s.CostMicroUSD != 60 || s.Tokens != 600 ||
		s.EstimatedMicroUSD != 60 || s.EstimatedTokens != 600 || !strings.Contains(s.EstimatedWhy, "its process ended") {
		t.Errorf("after the rescue: %+v", s)
	}

	took := ledger.Usage{TokensIn: 600, CostMicroUSD: 60, EstimatedTokens: 600, EstimatedMicroUSD: 60}
	if run := get(t, l, a.Run); run.Usage != took {
		t.Errorf("the run: %+v", run.Usage)
	}
	if steps := must[[]steps.Step](t)(l.Steps.List(ctx, a.Run)); steps[0].Usage != took {
		t.Errorf("the step: %+v", steps[0].Usage)
	}
	if sums, err := l.Budget.Settle(ctx, id, ledger.Usage{CostMicroUSD: 1}, ""); err != nil || sums != nil {
		t.Errorf("settled by a process that had lost its attempt: %+v (%v)", sums, err)
	}
}

// budgetRace tests that concurrent attempts of two processes never exceed the limit, and that their
// usage adds up.
func budgetRace(t *testing.T, open Open) {
	const limit = 1000
	two := [2]*ledger.Ledger{open(t), open(t)}
	attempts := make([]ledger.Attempt, 8)
	for i := range attempts {
		attempts[i] = begin(t, two[0], fmt.Sprint("j", i%2))
	}

	var all sync.WaitGroup
	var taken, refused atomic.Int64
	for i, a := range attempts {
		l := two[i%2]
		all.Go(func() {
			for range 20 {
				wanted := rand.Int64N(60) + 1
				r := budget.Reservation{Step: 1, Day: today, Agent: "a", Job: fmt.Sprint("j", i%2), Usage: ledger.Usage{TokensOut: 1, CostMicroUSD: wanted},
					DaemonLimit: budget.Limit{CostMicroUSD: limit}, JobLimit: budget.Limit{CostMicroUSD: limit * 2 / 3}}
				id, full, err := l.Budget.Reserve(t.Context(), a, r)
				if err != nil {
					t.Error(err)
					return
				}

				if full != nil {
					refused.Add(1)
					continue
				}

				took := rand.Int64N(wanted + 1)
				sums, err := l.Budget.Settle(t.Context(), id, ledger.Usage{TokensOut: 1, CostMicroUSD: took}, "")
				if err != nil {
					t.Error(err)
					return
				}

				taken.Add(took)
				for _, s := range sums {
					most := int64(limit)
					if s.Scope == budget.ScopeJob {
						most = limit * 2 / 3
					}
					if s.Scope != budget.ScopeAgent && s.CostMicroUSD+s.ReservedMicroUSD > most {
						t.Errorf("%d of %d: %+v", s.CostMicroUSD+s.ReservedMicroUSD, most, s)
					}
				}
			}
		})
	}

	all.Wait()
	s := spent(t, two[0], today, budget.ScopeDaemon, "")
	if s.CostMicroUSD != taken.Load() || s.ReservedMicroUSD != 0 || s.ReservedTokens != 0 || s.CostMicroUSD > limit || refused.Load() == 0 {
		t.Errorf("%+v, %d were taken, %d calls refused", s, taken.Load(), refused.Load())
	}

	jobs := spent(t, two[0], today, budget.ScopeJob, "j0").CostMicroUSD + spent(t, two[0], today, budget.ScopeJob, "j1").CostMicroUSD
	if agent := spent(t, two[0], today, budget.ScopeAgent, "a").CostMicroUSD; agent != s.CostMicroUSD || jobs != s.CostMicroUSD {
		t.Errorf("the daemon has %d, its agent %d, its jobs %d", s.CostMicroUSD, agent, jobs)
	}
}
