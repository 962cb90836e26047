package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	ledgerbudget "rouse/internal/ledger/budget"
	"rouse/internal/text"
)

// warnAt is how much of a day's budget is used when its owner is told, in percent.
const warnAt = 80

// maxWhy is how much is kept of why something was not reported, in characters.
const maxWhy = 300

// budget keeps an attempt within the bounds of its run and the budgets of its day.
type budget struct {
	*Runner
	attempt *attempt
	job     string      // whose budget it is, "" for none
	bounds  loop.Bounds // what is left of the run's
	zone    *time.Location
	// skips: the run has not begun, and nobody but the clock asked for it.
	skips bool

	tokens, cost int64 // that the attempt took
	reserved     map[int64]model.Usage
}

func (r *Runner) newBudget(t *attempt, left loop.Bounds) *budget {
	b := &budget{Runner: r, attempt: t, job: t.Run.Job, bounds: left, zone: t.Plan.Zone, reserved: map[int64]model.Usage{},
		skips: !t.past.began && (t.Run.Trigger == domain.TriggerSchedule || t.Run.Trigger == domain.TriggerSelf)}
	if t.Origin != nil {
		b.job = t.Origin.Name // a wake spends what its job may spend
	}
	return b
}

type overBudget struct {
	outcome domain.Outcome
	exit    domain.Exit
	reason  string
}

func (e *overBudget) Error() string           { return e.reason }
func (e *overBudget) Outcome() domain.Outcome { return e.outcome }
func (e *overBudget) Exit() domain.Exit       { return e.exit }

func overRunBudget(format string, args ...any) error {
	return &overBudget{domain.OutcomeBudget, domain.ExitCancelled, fmt.Sprintf(format, args...)}
}

// Reserve implements loop.Budget.
func (b *budget) Reserve(ctx context.Context, step int, most model.Usage) (int64, error) {
	cost, n := b.attempt.relay.model().Price.Cost(most), most.Input+most.Output
	if limit := b.bounds.CostMicroUSD; limit > 0 && cost > 0 && b.cost+cost > limit {
		return 0, overRunBudget("the next turn may cost %s, and %s are left of the run's cost_usd (bounds)%s", model.USD(cost), model.USD(max(limit-b.cost, 0)), b.hint())
	}
	if limit := b.bounds.Tokens; limit > 0 && b.tokens+n > limit {
		return 0, overRunBudget("the next turn may take %d tokens, and %d are left of the run's tokens (bounds)%s", n, max(limit-b.tokens, 0), b.hint())
	}

	id, err := b.reserve(ctx, step, ledger.Usage{TokensIn: most.Input, TokensOut: most.Output, CostMicroUSD: cost})
	if err == nil {
		b.reserved[id] = most
	}
	return id, err
}

// reserve takes the most that a step may use out of the budgets of the day. A budget without room is an *overBudget.
func (b *budget) reserve(ctx context.Context, step int, most ledger.Usage) (int64, error) {
	now := time.Now()
	day := ledgerbudget.DayOf(now, b.zone)
	id, full, err := b.ledger.Budget.Reserve(ctx, b.attempt.a, ledgerbudget.Reservation{
		Step: step, Day: day.Name, Agent: b.attempt.Agent.Name, Job: b.job, Usage: most,
		DaemonLimit: ledgerbudget.Limit(b.attempt.Plan.Budget), AgentLimit: ledgerbudget.Limit(b.attempt.Agent.Budget), JobLimit: ledgerbudget.Limit(b.attempt.GoverningJob().Budget),
	})
	switch {
	case err != nil:
		return 0, err
	case full == nil:
		b.skips = false // from here on the run has begun
		return id, nil
	}

	if full.Monthly() {
		day = ledgerbudget.MonthOf(now, b.zone)
	}

	// That a day or a month is over its budget says nothing about this run.
	refusal := &overBudget{domain.OutcomeBudget, domain.ExitEnded, describeFull(*full, day, most.TokensIn+most.TokensOut, most.CostMicroUSD)}
	if b.skips {
		refusal.outcome = domain.OutcomeSkipped
	}
	if err := b.notify(ctx, full.Spending, ":full", func(key string) []ledger.Notice { return fullNotices(b, *full, key, refusal.reason) }); err != nil {
		return 0, err
	}

	return 0, refusal
}

// Settle implements loop.Budget.
func (b *budget) Settle(ctx context.Context, id int64, used loop.Settlement) (loop.Spent, error) {
	reserved, price := b.reserved[id], b.attempt.relay.model().Price
	delete(b.reserved, id)
	reported, estimated := b.plausible(used.Reported, reserved), used.Estimated.Clamped()
	took := loop.Spent{
		Usage:           reported.Add(estimated),
		EstimatedTokens: estimated.Input + estimated.Output, EstimatedMicroUSD: price.Cost(estimated),
	}
	took.CostMicroUSD = price.Cost(reported) + took.EstimatedMicroUSD

	b.tokens, b.cost = b.tokens+took.Usage.Input+took.Usage.Output, b.cost+took.CostMicroUSD
	sums, err := b.ledger.Budget.Settle(ctx, id, ledgerUsage(took), b.estimatedWhy(took, used.Why))
	if err != nil {
		return took, err
	}

	return took, b.warn(ctx, sums)
}

// estimatedWhy says why a part of what a turn took is estimated, "" when none is.
func (b *budget) estimatedWhy(took loop.Spent, failure error) string {
	switch {
	case took.EstimatedTokens == 0:
		return ""
	case failure == nil:
		return fmt.Sprintf("run %d: the server of the model %s did not say what its answer took", b.attempt.Run.ID, b.attempt.relay.model().Name)
	}
	return text.Truncate(b.attempt.redactor().Replace(fmt.Sprintf("run %d: %v", b.attempt.Run.ID, failure)), maxWhy)
}

func ledgerUsage(s loop.Spent) ledger.Usage {
	return ledger.Usage{TokensIn: s.Usage.Input, TokensOut: s.Usage.Output, TokensCached: s.Usage.Cached, CostMicroUSD: s.CostMicroUSD,
		EstimatedTokens: s.EstimatedTokens, EstimatedMicroUSD: s.EstimatedMicroUSD}
}

// plausible limits a reported usage to twice what the context holds or was reserved, because one
// report of a broken server could use up the day's budget.
func (b *budget) plausible(used, reserved model.Usage) model.Usage {
	most := 2 * max(int64(b.attempt.relay.model().ContextSize()), loop.DefaultWindow, reserved.Input+reserved.Output)
	used.Input, used.Output = min(used.Input, most), min(used.Output, most)
	return used.Clamped()
}

func (b *budget) hint() string {
	if b.attempt.relay.model().MaxOutput > 0 {
		return ""
	}
	return "; with max_output on the model less is set aside for an answer"
}

func (b *budget) limit(s ledgerbudget.Spending) plan.Budget {
	switch s.Scope {
	case ledgerbudget.ScopeDaemon:
		return b.attempt.Plan.Budget
	case ledgerbudget.ScopeAgent:
		return b.attempt.Agent.Budget
	}
	return b.attempt.GoverningJob().Budget
}

// warn tells once a day, and once a month, of each budget that most of it is used.
func (b *budget) warn(ctx context.Context, sums []ledgerbudget.Spending) error {
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

		if err := b.notify(ctx, s, "", func(key string) []ledger.Notice { return budgetNotices(b, s, key, used) }); err != nil {
			return err
		}
	}
	return nil
}

// notify appends notices about a budget once for each period.
func (b *budget) notify(ctx context.Context, s ledgerbudget.Spending, suffix string, notices func(key string) []ledger.Notice) error {
	key := fmt.Sprintf("budget:%s:%s:%s%s", s.Day, s.Scope, s.Name, suffix)
	if _, told := b.budgetsWarned.LoadOrStore(key, true); told {
		return nil
	}

	// The map is never emptied otherwise, so drop the entries of earlier months.
	b.budgetsWarned.Range(func(k, _ any) bool {
		if old, ok := k.(string); ok && !strings.HasPrefix(old, "budget:"+s.Day[:7]) {
			b.budgetsWarned.Delete(k)
		}
		return true
	})
	return b.ledger.AppendNotices(ctx, notices(key)...)
}

func nearlyUsed(used, limit int64) bool {
	return limit > 0 && float64(used)*100 >= float64(limit)*warnAt
}

func budgetOwner(s ledgerbudget.Spending) string {
	if s.Scope == ledgerbudget.ScopeDaemon {
		return "rouse"
	}
	return s.Scope + " " + s.Name
}

// describeFull describes a budget without room. If estimates have filled it, their cause comes
// first.
func describeFull(f ledgerbudget.Exceeded, until ledgerbudget.Day, tokens, cost int64) string {
	whose, key := budgetOwner(f.Spending), "budget"
	if f.Scope == ledgerbudget.ScopeDaemon {
		whose, key = "the daemon", "limits"
	}

	limitUSD, limit := f.Spending.Limit(f.Limit)
	amount, name, period := func(n int64) string { return fmt.Sprint(n) }, "tokens", periodText(f.Spending)
	spent, estimated, reserved, wanted := f.Tokens, f.EstimatedTokens, f.ReservedTokens, tokens
	if f.Money {
		amount, name, limit = model.USD, "cost_usd", limitUSD
		spent, estimated, reserved, wanted = f.CostMicroUSD, f.EstimatedMicroUSD, f.ReservedMicroUSD, cost
	}

	said := fmt.Sprintf("the %s's budget of %s (%s.%s_per_%s: %s) has no room for a turn of up to %s: %s are spent", period, whose, key, name, period, amount(limit), amount(wanted), amount(spent))
	if reserved > 0 {
		said += fmt.Sprintf(" and %s reserved", amount(reserved))
	}

	said += fmt.Sprintf("; the %s ends at %s", period, until.Ends.Format(time.RFC3339))
	why := fmt.Sprintf("%s of what is spent are estimated, for requests of which no server said what they took", amount(estimated))
	switch {
	case estimated == 0:
		return said
	case spent-estimated+reserved+wanted <= limit:
		return fmt.Sprintf("%s; %s; without them there would be room: %s", f.EstimatedWhy, why, said)
	}
	return fmt.Sprintf("%s; %s, the last in %s", said, why, f.EstimatedWhy)
}

func periodText(s ledgerbudget.Spending) string {
	if s.Monthly() {
		return "month"
	}
	return "day"
}
