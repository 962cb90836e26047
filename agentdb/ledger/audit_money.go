package ledger

import (
	"context"
	"database/sql"
	"time"
)

// auditMoney are the checks of what models cost.
var auditMoney = []AuditCheck{
	{
		Name: "spent-run", Promise: "what a run took is the sum of its steps",
		query: `select r.id, r.job, r.tokens_in, r.tokens_out, r.cost_micro_usd, s.tin, s.tout, s.cost from runs r
			join (select run, cast(sum(tokens_in) as bigint) as tin, cast(sum(tokens_out) as bigint) as tout, cast(sum(cost_micro_usd) as bigint) as cost from steps group by run) s on s.run = r.id
			where r.state <> 'running' and (r.tokens_in <> s.tin or r.tokens_out <> s.tout or r.cost_micro_usd <> s.cost) order by r.id`,
		say: "run %d of the job %q took %d and %d tokens and %d millionths of a dollar, and its steps %d, %d and %d",
	},
	{
		Name: "spent-day", Promise: "what all agents took in a day is the sum of theirs, and of it the jobs took no more",
		query: `select d.day, d.tokens, d.cost_micro_usd, coalesce(a.tokens, 0), coalesce(a.cost, 0), coalesce(j.tokens, 0), coalesce(j.cost, 0)
			from (select period as day, cast(sum(case when scope = 'daemon' then tokens else 0 end) as bigint) as tokens, cast(sum(case when scope = 'daemon' then cost_micro_usd else 0 end) as bigint) as cost_micro_usd from spending where length(period) = 10 group by period) d
			left join (select period as day, cast(sum(tokens) as bigint) as tokens, cast(sum(cost_micro_usd) as bigint) as cost from spending where scope = 'agent' group by period) a on a.day = d.day
			left join (select period as day, cast(sum(tokens) as bigint) as tokens, cast(sum(cost_micro_usd) as bigint) as cost from spending where scope = 'job' group by period) j on j.day = d.day
			where d.tokens <> coalesce(a.tokens, 0) or d.cost_micro_usd <> coalesce(a.cost, 0) or d.tokens < coalesce(j.tokens, 0) or d.cost_micro_usd < coalesce(j.cost, 0) order by d.day`,
		say: "on %s all took %d tokens and %d millionths of a dollar, the agents %d and %d, the jobs %d and %d",
	},
	{
		Name: "spent-month", Promise: "a month holds at least what its days do",
		query: `select m.period, m.scope, m.name, m.tokens, m.cost_micro_usd, d.tokens, d.cost from spending m
			join (select substr(period, 1, 7) as month, scope, name, cast(sum(tokens) as bigint) as tokens, cast(sum(cost_micro_usd) as bigint) as cost from spending where length(period) = 10 group by substr(period, 1, 7), scope, name) d
			on d.month = m.period and d.scope = m.scope and d.name = m.name where m.tokens < d.tokens or m.cost_micro_usd < d.cost order by m.period`,
		say: "in %s the %s %q took %d tokens and %d millionths of a dollar, and its days hold %d and %d",
	},
	{
		Name: "spent-steps", Promise: "the days hold at least what their steps took",
		find: auditSteps,
	},
	{
		Name: "reserved-run", Promise: "only an attempt that is on has something reserved",
		query: `select h.id, h.run, h.attempt, h.day, coalesce(r.state, 'not there'), coalesce(r.attempt, 0) from reservations h left join runs r on r.id = h.run
			where r.id is null or r.state <> 'running' or r.attempt <> h.attempt order by h.id`,
		say: "the reservation %d is of run %d, attempt %d (%s), and the run is %s at attempt %d: its room in the budget is lost",
	},
	{
		Name: "reserved-day", Promise: "what is reserved of a day is the sum of its reservations",
		query: `select s.period, s.reserved_tokens, s.reserved_micro_usd, coalesce(h.tokens, 0), coalesce(h.cost, 0) from spending s
			left join (select day, cast(sum(tokens_in + tokens_out) as bigint) as tokens, cast(sum(cost_micro_usd) as bigint) as cost from reservations group by day) h on h.day = s.period
			where s.scope = 'daemon' and length(s.period) = 10 and (s.reserved_tokens <> coalesce(h.tokens, 0) or s.reserved_micro_usd <> coalesce(h.cost, 0)) order by s.period`,
		say: "of %s there are %d tokens and %d millionths of a dollar reserved, and the reservations are of %d and %d",
	},
}

// auditSteps compares the sums of all days with the steps since then. The steps of runs that are no longer kept are
// missing, so that the days hold more. A day may begin up to a day apart in another time zone.
func auditSteps(ctx context.Context, a *auditor) error {
	var first sql.NullString
	var spent, stepped int64
	err := a.tx.QueryRowContext(ctx, `select min(period), cast(coalesce(sum(cost_micro_usd), 0) as bigint) from spending where scope = 'daemon' and length(period) = 10`).Scan(&first, &spent)
	if err != nil || !first.Valid {
		return err
	}

	day, err := time.Parse(time.DateOnly, first.String)
	if err != nil {
		return a.report("the day %q of the sums is none", first.String)
	}
	since := ms(day.AddDate(0, 0, 2))
	if err := a.tx.QueryRowContext(ctx, `select cast(coalesce(sum(cost_micro_usd), 0) as bigint) from steps where started_at >= $1`, since).Scan(&stepped); err != nil {
		return err
	}
	if stepped > spent {
		return a.report("since %s the steps took %d millionths of a dollar, and the days hold %d: less is counted than was spent", first.String, stepped, spent)
	}
	return nil
}
