package control

import (
	"context"
	"slices"
	"time"

	agentplan "rouse/agent/plan"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/budget"
	"rouse/scheduler"
)

const (
	costDays = 7  // number of days that Cost looks ahead
	costRuns = 50 // number of past runs of a job to use
	high     = 90 // percentile for the high estimate
)

// Cost estimates the cost of the coming week for a job. If job is empty, it estimates the cost of
// all jobs.
func (x *Costs) Cost(ctx context.Context, job string) (api.Cost, error) {
	s, now := x.Setup(), x.Ledger.Now()
	if err := s.Usable(); err != nil {
		return api.Cost{}, err
	}

	until := now.AddDate(0, 0, costDays)
	out := api.Cost{From: api.At(now), To: api.At(until), Jobs: []api.CostRow{}}
	counted := map[string]int{}
	for _, j := range s.Config.Jobs {
		if name := string(j.Name); job == "" || name == job {
			runs, after := x.comingRuns(s, &j, now, until, counted)
			if runs == 0 && job == "" {
				continue // no scheduled runs
			}

			last, err := x.Ledger.Runs.LastUsages(ctx, name, costRuns)
			if err != nil {
				return out, err
			}
			row := costRow(runs, last)
			row.Job, row.Agent, row.After = name, j.Agent, after
			out.Jobs = append(out.Jobs, row)
		}
	}

	for _, r := range out.Jobs {
		out.MedianUSD, out.HighUSD = out.MedianUSD+r.MedianUSD, out.HighUSD+r.HighUSD
		out.MedianTokens, out.HighTokens = out.MedianTokens+r.MedianTokens, out.HighTokens+r.HighTokens
		if r.PastRuns == 0 {
			out.Unforeseen += r.Runs
		}
	}
	return out, nil
}

// comingRuns returns the number of runs of a job until a time. The number after includes only runs
// that follow runs of other jobs.
func (x *Costs) comingRuns(s *plan.Setup, j *config.Job, now, until time.Time, counted map[string]int) (runs, after int) {
	if !config.On(j.Enabled) {
		return 0, 0
	}

	runs = foreseenRuns(x.comingUntil(string(j.Name), now, until), now, until)
	for _, f := range j.Follows {
		first := s.Job(f.Job)
		if first == nil || !slices.Contains(f.On, domain.OutcomeSuccess) {
			continue
		}
		n, known := counted[f.Job]
		if !known {
			n, _ = x.comingRuns(s, first, now, until, counted) // the configuration cannot contain a cycle
			counted[f.Job] = n
		}
		after += n
	}
	return runs + after, after
}

// costRow estimates the cost of a number of runs from the usage of past runs.
func costRow(runs int, last []ledger.Usage) api.CostRow {
	row := api.CostRow{Runs: runs, PastRuns: len(last)}
	if len(last) == 0 {
		return row
	}

	cost, tokens := sortedUsage(last)
	n := float64(runs)
	row.RunMedianUSD, row.RunHighUSD = usd(median(cost)), usd(percentile(cost, high))
	row.RunMedianTokens, row.RunHighTokens = int64(median(tokens)), int64(percentile(tokens, high))
	row.MedianUSD, row.HighUSD = usd(median(cost)*n), usd(percentile(cost, high)*n)
	row.MedianTokens, row.HighTokens = row.RunMedianTokens*int64(runs), row.RunHighTokens*int64(runs)
	return row
}

// usd converts millionths of a US dollar to dollars.
func usd[T int64 | float64](micro T) float64 { return float64(int64(micro)) / 1e6 }

// sortedUsage returns the costs and token counts of runs, each in ascending order.
func sortedUsage(runs []ledger.Usage) (cost, tokens []float64) {
	for _, u := range runs {
		cost, tokens = append(cost, float64(u.CostMicroUSD)), append(tokens, float64(u.TokensIn+u.TokensOut))
	}
	slices.Sort(cost)
	slices.Sort(tokens)
	return cost, tokens
}

// median returns the median of sorted values. There must be at least one.
func median(values []float64) float64 {
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// percentile returns the nearest percentile of sorted values. There must be at least one.
func percentile(values []float64, of int) float64 {
	rank := (len(values)*of + 99) / 100
	return values[max(rank, 1)-1]
}

const (
	forecastRuns = 20   // number of past runs of a job to use
	forecastMax  = 1000 // maximum number of occurrences to count; more are extrapolated
)

// forecast is the expected usage of coming runs.
type forecast struct {
	runs         int
	unknown      int // runs of jobs without past runs, so that their usage is unknown
	cost, tokens float64
}

func (f forecast) plus(o forecast) forecast {
	return forecast{f.runs + o.runs, f.unknown + o.unknown, f.cost + o.cost, f.tokens + o.tokens}
}

// Budget returns today's and this month's model costs, and the limits.
func (x *Costs) Budget(ctx context.Context) (api.Budget, error) {
	s, now := x.Setup(), x.Ledger.Now()
	if err := s.Usable(); err != nil {
		return api.Budget{}, err
	}

	zone := s.Config.Zone()
	day, month := budget.DayOf(now, zone), budget.MonthOf(now, zone)
	out := api.Budget{Day: day.Name, Timezone: zone.String(), EndsAt: api.At(day.Ends), Month: month.Name, MonthEndsAt: api.At(month.Ends)}
	sums, err := x.Ledger.Budget.SpendingOn(ctx, day.Name)
	if err != nil {
		return out, err
	}
	ofMonth, err := x.Ledger.Budget.SpendingOn(ctx, month.Name)
	if err != nil {
		return out, err
	}

	ofToday, toMonthsEnd, err := x.forecasts(ctx, s, now, day.Ends, month.Ends)
	if err != nil {
		return out, err
	}
	out.Budgets = budgetRows(s, sums, ofToday, func(b agentplan.Budget) agentplan.Budget { return b })
	out.Months = budgetRows(s, ofMonth, toMonthsEnd, func(b agentplan.Budget) agentplan.Budget {
		return agentplan.Budget{CostMicroUSD: b.MonthMicroUSD, Tokens: b.MonthTokens}
	})
	return out, nil
}

// forecasts returns forecasts of each job for the rest of the day and for the rest of the month.
func (x *Costs) forecasts(ctx context.Context, s *plan.Setup, now, day, month time.Time) (ofDay, ofMonth []forecast, err error) {
	for _, j := range s.Config.Jobs {
		coming := x.comingUntil(string(j.Name), now, month)
		untilDay, untilMonth := foreseenRuns(coming, now, day), foreseenRuns(coming, now, month)
		var last []ledger.Usage
		if untilMonth > 0 {
			if last, err = x.Ledger.Runs.LastUsages(ctx, string(j.Name), forecastRuns); err != nil {
				return nil, nil, err
			}
		}
		ofDay, ofMonth = append(ofDay, foreseen(untilDay, last)), append(ofMonth, foreseen(untilMonth, last))
	}
	return ofDay, ofMonth, nil
}

// budgetRows returns the budgets of the daemon, of each agent and of each job, with forecasts. The
// function of selects the limits of the period.
func budgetRows(s *plan.Setup, sums []budget.Spending, forecasts []forecast, of func(agentplan.Budget) agentplan.Budget) []api.BudgetRow {
	var all forecast
	byAgent := map[string]forecast{}
	jobs := make([]api.BudgetRow, 0, len(s.Config.Jobs))
	for i, j := range s.Config.Jobs {
		f := forecasts[i]
		all, byAgent[j.Agent] = all.plus(f), byAgent[j.Agent].plus(f)
		jobs = append(jobs, newBudgetRow(budget.ScopeJob, string(j.Name), sums, of(plan.NewBudget(j.Budget)), f))
	}

	out := []api.BudgetRow{newBudgetRow(budget.ScopeDaemon, "", sums, of(s.Plan.Runner.Budget), all)}
	for _, a := range s.Config.Agents {
		out = append(out, newBudgetRow(budget.ScopeAgent, string(a.Name), sums, of(plan.NewBudget(a.Budget)), byAgent[string(a.Name)]))
	}
	out = append(out, jobs...)
	// Add jobs and agents with costs that were removed from the configuration.
	for _, sum := range sums {
		if !slices.ContainsFunc(out, func(r api.BudgetRow) bool { return r.Scope == sum.Scope && r.Name == sum.Name }) {
			out = append(out, newBudgetRow(sum.Scope, sum.Name, sums, agentplan.Budget{}, forecast{}))
		}
	}
	return out
}

// foreseenRuns returns the number of scheduled runs until a time. The argument coming is a result
// of comingUntil.
func foreseenRuns(coming []scheduler.Upcoming, now, until time.Time) (runs int) {
	for _, u := range coming {
		if u.Decision == domain.DecisionRun && !u.Actual.Before(now) && u.Actual.Before(until) {
			runs++
		}
	}

	// If there are more occurrences than counted, assume the same rate for the rest.
	if len(coming) == forecastMax {
		if seen := coming[len(coming)-1].Nominal.Sub(now); seen > 0 && seen < until.Sub(now) {
			runs = int(float64(runs) * float64(until.Sub(now)) / float64(seen))
		}
	}
	return runs
}

// foreseen estimates the usage of runs by the median of past runs.
func foreseen(runs int, last []ledger.Usage) forecast {
	if len(last) == 0 {
		return forecast{runs: runs, unknown: runs}
	}
	cost, tokens := sortedUsage(last)
	return forecast{runs: runs, cost: median(cost) * float64(runs), tokens: median(tokens) * float64(runs)}
}

// comingUntil returns the occurrences of a job until a time. It requests only a few at first, which
// is faster.
func (x *Costs) comingUntil(job string, now, until time.Time) []scheduler.Upcoming {
	for n := 8; ; n *= 8 {
		coming := x.Scheduler.Next(job, min(n, forecastMax), now)
		if n >= forecastMax || len(coming) < n || !coming[len(coming)-1].Actual.Before(until) {
			return coming
		}
	}
}

func newBudgetRow(scope, name string, sums []budget.Spending, limit agentplan.Budget, f forecast) api.BudgetRow {
	var s budget.Spending
	if i := slices.IndexFunc(sums, func(s budget.Spending) bool { return s.Scope == scope && s.Name == name }); i >= 0 {
		s = sums[i]
	}
	row := api.BudgetRow{Scope: scope, Name: name, RunsToCome: f.runs, RunsUnforeseen: f.unknown, ForecastUSD: usd(f.cost), ForecastTokens: int64(f.tokens),
		SpentUSD: usd(s.CostMicroUSD), ReservedUSD: usd(s.ReservedMicroUSD), SpentTokens: s.Tokens, ReservedTokens: s.ReservedTokens,
		EstimatedUSD: usd(s.EstimatedMicroUSD), EstimatedTokens: s.EstimatedTokens, EstimatedWhy: s.EstimatedWhy}
	// 0 means no limit, which the row omits. Like the ledger, the row counts reserved amounts as
	// spent.
	if most := limit.CostMicroUSD; most > 0 {
		all, left := usd(most), usd(max(most-s.CostMicroUSD-s.ReservedMicroUSD, 0))
		row.LimitUSD, row.LeftUSD = &all, &left
	}
	if most := limit.Tokens; most > 0 {
		left := max(most-s.Tokens-s.ReservedTokens, 0)
		row.LimitTokens, row.LeftTokens = &most, &left
	}
	return row
}
