package ledgertest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"rouse/internal/ledger"
	"rouse/internal/ledger/budget"
)

// months tests that the sums of a month are those of its days, including reservations left by a
// dead process. A monthly limit refuses one unit too many, in addition to the daily limits.
func months(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := begin(t, l, "j")
	take := func(day string, cost int64) {
		t.Helper()
		r := reservation(cost, 10*cost)
		r.Day = day
		id, full, err := l.Budget.Reserve(ctx, a, r)
		ok(t, err)
		if full != nil {
			t.Fatalf("no room without a limit: %+v", full)
		}
		sums := must[[]budget.Spending](t)(l.Budget.Settle(ctx, id, ledger.Usage{TokensIn: 10 * cost, CostMicroUSD: cost}, ""))
		if len(sums) != 6 {
			t.Errorf("the sums of a day and its month: %+v", sums)
		}
	}
	take("2026-11-01", 10)
	take("2026-11-30", 20)
	take("2026-12-01", 5)
	take("2026-10-31", 7)
	for _, whose := range [][2]string{{budget.ScopeDaemon, ""}, {budget.ScopeAgent, "a"}, {budget.ScopeJob, "j"}} {
		for month, want := range map[string]int64{"2026-10": 7, "2026-11": 30, "2026-12": 5, "2027-01": 0} {
			if s := spent(t, l, month, whose[0], whose[1]); s.CostMicroUSD != want || s.Tokens != 10*want || s.ReservedMicroUSD != 0 {
				t.Errorf("%s of %s: %+v, want %d", month, whose, s, want)
			}
		}
	}

	for what, c := range map[string]struct {
		set   func(*budget.Reservation)
		scope string
		money bool
	}{
		"daemon's money": {func(r *budget.Reservation) { r.DaemonLimit.MonthMicroUSD = 89 }, budget.ScopeDaemon, true},
		"agent's money":  {func(r *budget.Reservation) { r.AgentLimit.MonthMicroUSD = 89 }, budget.ScopeAgent, true},
		"job's tokens":   {func(r *budget.Reservation) { r.JobLimit.MonthTokens = 899 }, budget.ScopeJob, false},
		"and its day's":  {func(r *budget.Reservation) { r.JobLimit.MonthTokens, r.JobLimit.Tokens = 900, 599 }, budget.ScopeJob, false},
	} {
		r := reservation(60, 600)
		c.set(&r)
		_, full, err := l.Budget.Reserve(ctx, a, r)
		if err != nil || full == nil || full.Scope != c.scope || full.Money != c.money || full.Monthly() != (what != "and its day's") {
			t.Errorf("%s: %+v (%v)", what, full, err)
		}
	}

	// A reservation of a dead process counts in its month, too.
	r := reservation(60, 600)
	r.DaemonLimit = budget.Limit{MonthMicroUSD: 90, MonthTokens: 900}
	if _, full, err := l.Budget.Reserve(ctx, a, r); err != nil || full != nil {
		t.Fatalf("there is room for exactly that: %+v (%v)", full, err)
	}
	if _, full, err := l.Budget.Reserve(ctx, a, r); err != nil || full == nil || full.ReservedMicroUSD != 60 || full.Day != "2026-11" {
		t.Errorf("what is reserved does not count: %+v (%v)", full, err)
	}
	ok(t, l.Interrupt(ctx, a, "killed", nil))
	if s := spent(t, open(t), "2026-11", budget.ScopeJob, "j"); s.CostMicroUSD != 90 || s.ReservedMicroUSD != 0 || s.EstimatedMicroUSD != 60 || s.EstimatedWhy == "" {
		t.Errorf("after the rescue: %+v", s)
	}
}

// monthRace tests that concurrent attempts of two processes never exceed the monthly limit, even
// around midnight.
func monthRace(t *testing.T, open Open) {
	const limit = 500
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
			for n := range 20 {
				r := budget.Reservation{Step: 1, Day: fmt.Sprintf("2026-11-%02d", 20+(i+n)%2), Agent: "a", Job: fmt.Sprint("j", i%2),
					Usage: ledger.Usage{TokensOut: 1, CostMicroUSD: rand.Int64N(30) + 1}, DaemonLimit: budget.Limit{MonthMicroUSD: limit}}
				id, full, err := l.Budget.Reserve(t.Context(), a, r)
				if err != nil {
					t.Error(err)
					return
				}
				if full != nil {
					refused.Add(1)
					continue
				}
				took := rand.Int64N(r.Usage.CostMicroUSD + 1)
				if _, err := l.Budget.Settle(t.Context(), id, ledger.Usage{TokensOut: 1, CostMicroUSD: took}, ""); err != nil {
					t.Error(err)
					return
				}
				taken.Add(took)
			}
		})
	}
	all.Wait()

	s := spent(t, two[0], "2026-11", budget.ScopeDaemon, "")
	var ofDays int64
	for _, day := range []string{"2026-11-20", "2026-11-21"} {
		ofDays += spent(t, two[0], day, budget.ScopeDaemon, "").CostMicroUSD
	}
	if s.CostMicroUSD != taken.Load() || s.CostMicroUSD != ofDays || s.ReservedMicroUSD != 0 || s.CostMicroUSD > limit || refused.Load() == 0 {
		t.Errorf("%+v, its days hold %d, %d were taken, %d calls refused", s, ofDays, taken.Load(), refused.Load())
	}
}
