package ledger

import (
	"context"
	"fmt"
	"strings"
)

// auditTime are the checks of instants, of what is claimed and of what is planned.
var auditTime = []AuditCheck{
	{
		Name: "occurrence-once", Promise: "an instant of a job has one row",
		query: `select job, nominal as t_nominal, count(*) from occurrences group by job, nominal having count(*) > 1 order by job, nominal`,
		say:   "the job %s has at %s %d rows for one instant: it may have run more than once",
	},
	{
		Name: "occurrence-run", Promise: "an instant whose decision is run has a run, which is of its job and was not skipped",
		query: `select o.job, o.nominal as t_nominal, o.decision, o.run, coalesce(r.job, ''), coalesce(r.outcome, '') from occurrences o left join runs r on r.id = o.run and o.run <> 0
			where (o.decision = 'run' and o.run = 0) or r.job <> o.job or (o.decision = 'run' and r.outcome = 'skipped') or o.decision not in ('run', 'skipped', 'missed', 'refused')
			order by o.job, o.nominal`,
		say: "the instant %[2]s of the job %[1]s has the decision %[3]q and run %[4]d (of the job %[5]q, outcome %[6]q)",
	},
	{
		Name: "occurrence-one-run", Promise: "a run stands for one instant",
		query: `select run, count(*), min(job) from occurrences where run <> 0 group by run having count(*) > 1 order by run`,
		say:   "run %d stands for %d instants of the job %s",
	},
	{
		// One that was skipped may have left its instant to a backfilled run.
		Name: "run-occurrence", Promise: "a run of a schedule has its instant",
		query: `select r.id, r.job, r.scheduled_at as t_scheduled from runs r where r.triggered_by in ('schedule', 'backfill') and r.key like 'time/%' and r.outcome <> 'skipped'
			and not exists (select 1 from occurrences o where o.run = r.id and o.run <> 0) order by r.id`,
		say: "run %d of the job %s is for the instant %s, which has no row",
	},
	{
		Name: "watermark", Promise: "no instant is later than what its job has dealt with", Clock: true,
		query: `select j.name, j.watermark as t_watermark, max(o.nominal) as t_nominal from jobs j join occurrences o on o.job = j.name where j.removed = 0
			group by j.name, j.watermark having max(o.nominal) > j.watermark order by j.name`,
		say: "the job %s has dealt with its instants up to %s, and one of %s has a row: it may be decided on again",
	},
	{
		Name: "claim-once", Promise: "a claimed content has one success",
		// The key of such a run is file/CLAIM/GENERATION.
		query: `select rtrim(key, '0123456789'), count(*), min(id), max(id) from runs where key like 'file/%' and outcome in ('success', 'nothing', 'partial')
			group by rtrim(key, '0123456789') having count(*) > 1 order by 3`,
		say: "the content of the claim %s has %d runs that ended well, from run %d to run %d: it was done more than once",
	},
	{
		Name: "claim-run", Promise: "a claimed content is in work exactly as long as its run is, and has that run's outcome",
		query: `select c.id, c.job, c.path, c.outcome, c.run, coalesce(r.state, 'not there'), coalesce(r.outcome, '') from claims c left join runs r on r.id = c.run
			where c.own = 0 and c.run <> 0 and ((c.outcome = '' and (r.id is null or r.state = 'finished')) or (r.state = 'finished' and r.outcome <> c.outcome) or (r.state <> 'finished' and c.outcome <> ''))
			order by c.id`,
		say: "the claim %[1]d of the job %[2]s on %[3]s has the outcome %[4]q, and its run %[5]d is %[6]s with the outcome %[7]q",
	},
	{
		Name: "wake-one", Promise: "an agent has one wake planned at most",
		query: `select agent, count(*) from slots group by agent having count(*) > 1 order by agent`,
		say:   "the agent %s has %d wakes planned",
	},
	{
		Name: "epochs", Promise: "no run id belongs to two epochs, and the last epoch goes on",
		query: `select e.n, e.id, e.first_run, e.last_run, coalesce(f.first_run, 0) from epochs e left join epochs f on f.n = e.n + 1
			where (f.n is null and e.last_run <> 0) or (f.n is not null and (e.last_run >= f.first_run or (e.last_run = 0 and e.first_run <> 0 and exists (select 1 from runs where runs.id >= f.first_run and runs.id <= e.last_run))))
			order by e.n`,
		say: "the epoch %d (%s) has the runs from %d to %d (0: it goes on), and the next begins with run %d",
	},
}

// auditRuns are the checks of runs and of what is recorded of them.
func auditRuns() []AuditCheck {
	return []AuditCheck{
		{
			Name: "run-state", Promise: "a finished run has an outcome and an end, any other has neither, and one that waits says for what",
			query: `select id, job, state, waiting_for, outcome, finished_at as t_finished from runs
				where state not in ('queued', 'running', 'waiting', 'finished') or (state = 'finished') <> (outcome <> '') or (state = 'finished') <> (finished_at <> 0) or (state = 'waiting') <> (waiting_for <> '')
				order by id`,
			say: "run %d of the job %q is %s (waiting for %q) with the outcome %q and the end %s",
		},
		{
			Name: "run-times", Promise: "a run ends after it began", Clock: true,
			query: `select id, job, started_at as t_started, finished_at as t_finished from runs where started_at <> 0 and finished_at <> 0 and finished_at < started_at order by id`,
			say:   "run %d of the job %q began at %s and ended at %s",
		},
		{
			Name: "attempt-numbers", Promise: "the attempts of a run are numbered from 1 without a gap, up to the one it is at",
			query: `select r.id, r.job, r.attempt, coalesce(a.n, 0), coalesce(a.low, 0), coalesce(a.high, 0) from runs r
				left join (select run, count(*) as n, min(number) as low, max(number) as high from attempts group by run) a on a.run = r.id
				where coalesce(a.n, 0) <> r.attempt or coalesce(a.high, 0) <> r.attempt or coalesce(a.low, 0) <> case when r.attempt = 0 then 0 else 1 end order by r.id`,
			say: "run %d of the job %q is at attempt %d, and has %d of them, from %d to %d",
		},
		{
			Name: "attempt-fence", Promise: "only the last attempt of a run that is on may be on",
			query: `select a.run, a.number, a.state, r.state, r.attempt from attempts a join runs r on r.id = a.run
				where (a.state = 'running') <> (r.state = 'running' and r.attempt = a.number) or (a.state = 'running') <> (a.finished_at = 0)
				order by a.run, a.number`,
			say: "of run %d the attempt %d is %s, while the run is %s at attempt %d",
		},
		{
			Name: "attempt-order", Promise: "an attempt begins after the one before has ended", Clock: true,
			query: `select a.run, a.number, a.finished_at as t_finished, b.number, b.started_at as t_started from attempts a join attempts b on b.run = a.run and b.number = a.number + 1
				where b.started_at < a.finished_at order by a.run, a.number`,
			say: "of run %d the attempt %d ended at %s, and attempt %d began at %s already",
		},
		{
			Name: "call-ended", Promise: "no call is on whose attempt is over",
			query: `select c.run, c.attempt, c.step, c.position, c.tool, a.state from calls c join attempts a on a.run = c.run and a.number = c.attempt
				where c.state = 'running' and a.state <> 'running' order by c.run, c.attempt, c.step, c.position`,
			say: "of run %d the call %[3]d.%[4]d of attempt %[2]d (%[5]s) is still on, and the attempt is %[6]s: nobody will know what became of it",
		},
		{
			Name: "call-step", Promise: "each call belongs to a step, each step to an attempt",
			query: `select 'call', c.run, c.attempt, c.step from calls c where not exists (select 1 from steps s where s.run = c.run and s.attempt = c.attempt and s.number = c.step)
				union all select 'step', s.run, s.attempt, s.number from steps s where not exists (select 1 from attempts a where a.run = s.run and a.number = s.attempt)`,
			say: "a %s of run %d, attempt %d, step %d, belongs to nothing that is on record",
		},
		{
			Name: "run-rows", Promise: "what is recorded of a run goes with it, and nothing is of a run that never was",
			query: runRows(), say: "there are rows in %[1]s of run %[2]d (%[3]d of them), which is not there",
		},
		{
			Name: "event-numbers", Promise: "the events of a run are numbered from 1 without a gap",
			query: `select run, count(*), min(seq), max(seq) from events where run <> 0 group by run having count(*) <> max(seq) or min(seq) <> 1 order by run`,
			say:   "run %d has %d events, numbered from %d to %d",
		},
		{
			Name: "question-asked", Promise: "a run that waits for a person has an open item in the inbox",
			query: `select r.id, r.job, r.waiting_for from runs r where r.state = 'waiting' and r.waiting_for in ('input', 'approval', 'pause')
				and not exists (select 1 from inbox i where i.run = r.id and i.state = 'open' and i.kind <> 'info') order by r.id`,
			say: "run %d of the job %q waits for %s, and nobody is asked: it would wait for ever",
		},
		{
			Name: "question-needed", Promise: "nobody is asked for a run that is over",
			query: `select i.id, i.kind, i.run, coalesce(r.state, 'not there') from inbox i left join runs r on r.id = i.run
				where i.state = 'open' and i.run <> 0 and i.kind not in ('info', 'database') and (r.id is null or r.state = 'finished') order by i.id`,
			say: "the item %d of the inbox (%s) is open, and its run %d is %s",
		},
		{
			Name: "notice-run", Promise: "a notice is of a run that the ledger has given",
			find: func(ctx context.Context, a *auditor) error {
				// Not the newest run that is there: retention may have removed it, and a notice outlives its run.
				return a.each(ctx, a.check.say, `select id, run, channel, state from outbox where state not in ('pending', 'delivered', 'unverified', 'failed') or run > (`+a.runIDs.newest+`) order by id`)
			},
			say: "the notice %d is of run %d, for the channel %s, and %s; no such run or state is known",
		},
		{
			Name: "review-run", Promise: "a workspace that is to be looked at knows the run that left it so",
			query: `select w.id, w.name, w.review from workspaces w where w.review <> 0 and not exists (select 1 from runs r where r.id = w.review) order by w.id`,
			say:   "the workspace %d (%s) is to be looked at because of run %d, which is not there",
		},
	}
}

// runRows finds rows of runs that are not there. A notice that was pending outlives its run.
func runRows() string {
	var parts []string
	for _, table := range []string{"attempts", "steps", "calls", "inbox", "file_ops", "deliveries", "reservations", "blobs", "events"} {
		parts = append(parts, fmt.Sprintf(`select '%[1]s', run, count(*) from %[1]s where run > 0 and not exists (select 1 from runs r where r.id = %[1]s.run) group by run`, table))
	}
	parts = append(parts, `select 'artifacts', run, count(*) from artifacts where workspace = 0 and not exists (select 1 from runs r where r.id = artifacts.run) group by run`)
	return strings.Join(parts, " union all ") + " order by 2, 1"
}
