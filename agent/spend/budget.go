// Package spend keeps an attempt within the bounds of its run and within the daily and monthly
// budgets. It warns the owner when a budget is nearly used up.
package spend

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"rouse/agent/failover"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/notice"
	"rouse/agent/plan"
	"rouse/agent/runlog"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	ledgerbudget "rouse/internal/ledger/budget"
	"rouse/internal/text"
)

// maxWhy is the maximum length of the reason for an estimate, in characters.
const maxWhy = 300

// Budget keeps an attempt within the bounds of its run and the daily and monthly budgets.
type Budget struct {
	ledger   *ledger.Ledger
	warned   *Warnings
	attempt  *plan.Attempt
	provider *failover.Provider // nil if an executor executes the run
	job      string             // job with the budget; "" without a job
	bounds   loop.Bounds        // rest of the run's bounds
	// skips reports whether an exceeded budget skips the run. It is true if the run has not begun
	// and was started by a schedule or a wake.
	skips bool

	tokens, cost int64 // usage of the attempt
	reserved     map[int64]model.Usage
}

// New returns the budget of an attempt. left is the rest of the run's bounds. began reports whether
// an earlier attempt has taken a step.
func New(l *ledger.Ledger, w *Warnings, t *plan.Attempt, p *failover.Provider, left loop.Bounds, began bool) *Budget {
	b := &Budget{ledger: l, warned: w, attempt: t, provider: p, job: t.Run.Job, bounds: left, reserved: map[int64]model.Usage{},
		skips: !began && (t.Run.Trigger == domain.TriggerSchedule || t.Run.Trigger == domain.TriggerSelf)}
	if t.Origin != nil {
		b.job = t.Origin.Name // a wake uses the budget of the job that began its chain
	}
	return b
}

// ExceededError is the error of a reservation that exceeds a budget.
type ExceededError struct {
	outcome domain.Outcome
	exit    domain.Exit
	reason  string
}

func (e *ExceededError) Error() string           { return e.reason }
func (e *ExceededError) Outcome() domain.Outcome { return e.outcome }
func (e *ExceededError) Exit() domain.Exit       { return e.exit }

func overRun(format string, args ...any) error {
	return &ExceededError{domain.OutcomeBudget, domain.ExitCancelled, fmt.Sprintf(format, args...)}
}

// Reserve implements loop.Budget.
func (b *Budget) Reserve(ctx context.Context, step int, most model.Usage) (int64, error) {
	cost, n := b.provider.Model().Price.Cost(most), most.Input+most.Output
	if limit := b.bounds.CostMicroUSD; limit > 0 && cost > 0 && b.cost+cost > limit {
		return 0, overRun("the next turn may cost %s, and %s are left of the run's cost_usd (bounds)%s", model.USD(cost), model.USD(max(limit-b.cost, 0)), b.hint())
	}
	if limit := b.bounds.Tokens; limit > 0 && b.tokens+n > limit {
		return 0, overRun("the next turn may take %d tokens, and %d are left of the run's tokens (bounds)%s", n, max(limit-b.tokens, 0), b.hint())
	}

	id, err := b.ReserveUsage(ctx, step, ledger.Usage{TokensIn: most.Input, TokensOut: most.Output, CostMicroUSD: cost})
	if err == nil {
		b.reserved[id] = most
	}
	return id, err
}

// ReserveUsage reserves the maximum usage of a step in the daily and monthly budgets. It returns an
// *ExceededError if a budget has no room.
func (b *Budget) ReserveUsage(ctx context.Context, step int, most ledger.Usage) (int64, error) {
	now := time.Now()
	day := ledgerbudget.DayOf(now, b.attempt.Plan.Zone)
	id, full, err := b.ledger.Budget.Reserve(ctx, b.attempt.Try, ledgerbudget.Reservation{
		Step: step, Day: day.Name, Agent: b.attempt.Agent.Name, Job: b.job, Usage: most,
		DaemonLimit: ledgerbudget.Limit(b.attempt.Plan.Budget), AgentLimit: ledgerbudget.Limit(b.attempt.Agent.Budget), JobLimit: ledgerbudget.Limit(b.attempt.GoverningJob().Budget),
	})
	switch {
	case err != nil:
		return 0, err
	case full == nil:
		b.skips = false // the run has begun
		return id, nil
	}

	if full.Monthly() {
		day = ledgerbudget.MonthOf(now, b.attempt.Plan.Zone)
	}

	// An exceeded budget is not an error of the run.
	refusal := &ExceededError{domain.OutcomeBudget, domain.ExitEnded, notice.DescribeFull(*full, day, most.TokensIn+most.TokensOut, most.CostMicroUSD)}
	if b.skips {
		refusal.outcome = domain.OutcomeSkipped
	}
	if err := b.notify(ctx, full.Spending, ":full", func(key string) []ledger.Notice {
		return notice.BudgetFull(&b.attempt.Task, b.job, *full, key, refusal.reason)
	}); err != nil {
		return 0, err
	}

	return 0, refusal
}

// Settle implements loop.Budget.
func (b *Budget) Settle(ctx context.Context, id int64, used loop.Settlement) (loop.Spent, error) {
	reserved, price := b.reserved[id], b.provider.Model().Price
	delete(b.reserved, id)
	reported, estimated := b.plausible(used.Reported, reserved), used.Estimated.Clamped()
	took := loop.Spent{
		Usage:           reported.Add(estimated),
		EstimatedTokens: estimated.Input + estimated.Output, EstimatedMicroUSD: price.Cost(estimated),
	}
	took.CostMicroUSD = price.Cost(reported) + took.EstimatedMicroUSD

	b.tokens, b.cost = b.tokens+took.Usage.Input+took.Usage.Output, b.cost+took.CostMicroUSD
	return took, b.SettleUsage(ctx, id, took, b.estimatedWhy(took, used.Why))
}

// SettleUsage replaces a reservation by the actual usage, and warns of budgets that are nearly used
// up. why is the reason if a part of the usage is estimated.
func (b *Budget) SettleUsage(ctx context.Context, id int64, took loop.Spent, why string) error {
	sums, err := b.ledger.Budget.Settle(ctx, id, runlog.Usage(took), why)
	if err != nil {
		return err
	}
	return b.warn(ctx, sums)
}

// estimatedWhy returns why a part of a turn's usage is estimated, or "".
func (b *Budget) estimatedWhy(took loop.Spent, failure error) string {
	switch {
	case took.EstimatedTokens == 0:
		return ""
	case failure == nil:
		return fmt.Sprintf("run %d: the server of the model %s did not say what its answer took", b.attempt.Run.ID, b.provider.Model().Name)
	}
	return text.Truncate(b.attempt.Redactor().Replace(fmt.Sprintf("run %d: %v", b.attempt.Run.ID, failure)), maxWhy)
}

// plausible limits a reported usage to twice the context or the reservation. Otherwise one wrong
// report of a server could use up the budget.
func (b *Budget) plausible(used, reserved model.Usage) model.Usage {
	most := 2 * max(int64(b.provider.Model().ContextSize()), loop.DefaultWindow, reserved.Input+reserved.Output)
	used.Input, used.Output = min(used.Input, most), min(used.Output, most)
	return used.Clamped()
}

func (b *Budget) hint() string {
	if b.provider.Model().MaxOutput > 0 {
		return ""
	}
	return "; with max_output on the model less is set aside for an answer"
}

func (b *Budget) limit(s ledgerbudget.Spending) plan.Budget {
	switch s.Scope {
	case ledgerbudget.ScopeDaemon:
		return b.attempt.Plan.Budget
	case ledgerbudget.ScopeAgent:
		return b.attempt.Agent.Budget
	}
	return b.attempt.GoverningJob().Budget
}

// warn notifies the owner of each budget that is nearly used up, once in each period.
func (b *Budget) warn(ctx context.Context, sums []ledgerbudget.Spending) error {
	for _, s := range sums {
		cost, tokens := s.Limit(ledgerbudget.Limit(b.limit(s)))
		used := ""
		switch {
		case nearlyUsed(s.CostMicroUSD, cost):
			used = fmt.Sprintf("%s of %s", model.USD(s.CostMicroUSD), model.USD(cost))
		case nearlyUsed(s.Tokens, tokens):
			used = fmt.Sprintf("%d of %d tokens", s.Tokens, tokens)
		default:
			continue
		}

		if err := b.notify(ctx, s, "", func(key string) []ledger.Notice { return notice.BudgetUsed(&b.attempt.Task, b.job, s, key, used) }); err != nil {
			return err
		}
	}
	return nil
}

// notify sends notices about a budget once in each period.
func (b *Budget) notify(ctx context.Context, s ledgerbudget.Spending, suffix string, notices func(key string) []ledger.Notice) error {
	key := fmt.Sprintf("budget:%s:%s:%s%s", s.Day, s.Scope, s.Name, suffix)
	if !b.warned.first(key, s.Day[:7]) {
		return nil
	}
	return b.ledger.Outbox.Append(ctx, notices(key)...)
}

func nearlyUsed(used, limit int64) bool {
	return limit > 0 && float64(used)*100 >= float64(limit)*notice.WarnAt
}

// Warnings remembers the notices about budgets that this process has sent. The zero value is ready
// to use. It is safe for concurrent use.
type Warnings struct{ keys sync.Map }

// first reports whether a notice is the first with its key. It forgets the notices of other months.
func (w *Warnings) first(key, month string) bool {
	if _, told := w.keys.LoadOrStore(key, true); told {
		return false
	}

	w.keys.Range(func(k, _ any) bool {
		if old, ok := k.(string); ok && !strings.HasPrefix(old, "budget:"+month) {
			w.keys.Delete(k)
		}
		return true
	})
	return true
}
