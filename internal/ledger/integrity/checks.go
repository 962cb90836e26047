package integrity

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/outbox"
	"rouse/internal/ledger/store"
)

// rowCheck returns a check with a query for violating rows.
func rowCheck(name, promise, query, say string) Check {
	return Check{Name: name, Promise: promise, query: query, say: say}
}

// clockCheck returns a rowCheck that a clock which was set back can also violate.
func clockCheck(name, promise, query, say string) Check {
	return Check{Name: name, Promise: promise, query: query, say: say, Clock: true}
}

// auditTime lists the checks of occurrences, claims, wakes and epochs.
var auditTime = []Check{
	rowCheck("occurrence-once", "an instant of a job has one row",
		`select job, nominal as t_nominal, count(*) from occurrences group by job, nominal having count(*) > 1 order by job, nominal`,
		"the job %s has at %s %d rows for one instant: it may have run more than once"),
	rowCheck("occurrence-run", "an instant whose decision is run has a run, which is of its job and was not skipped",
		`select o.job, o.nominal as t_nominal, o.decision, o.run, coalesce(r.job, ''), coalesce(r.outcome, '') from occurrences o left join runs r on r.id = o.run and o.run <> 0
			where (o.decision = 'run' and o.run = 0) or r.job <> o.job or (o.decision = 'run' and r.outcome = 'skipped') or o.decision not in ('run', 'skipped', 'missed', 'refused')
			order by o.job, o.nominal`,
		"the instant %[2]s of the job %[1]s has the decision %[3]q and run %[4]d (of the job %[5]q, outcome %[6]q)"),
	rowCheck("occurrence-one-run", "a run stands for one instant",
		`select run, count(*), min(job) from occurrences where run <> 0 group by run having count(*) > 1 order by run`,
		"run %d stands for %d instants of the job %s"),
	// The occurrence of a skipped run may belong to a backfilled run now.
	rowCheck("run-occurrence", "a run of a schedule has its instant",
		`select r.id, r.job, r.scheduled_at as t_scheduled from runs r where r.triggered_by in ('schedule', 'backfill') and r.key like 'time/%' and r.outcome <> 'skipped'
			and not exists (select 1 from occurrences o where o.run = r.id and o.run <> 0) order by r.id`,
		"run %d of the job %s is for the instant %s, which has no row"),
	clockCheck("watermark", "no instant is later than what its job has dealt with",
		`select j.name, j.watermark as t_watermark, max(o.nominal) as t_nominal from jobs j join occurrences o on o.job = j.name where j.removed = 0
			group by j.name, j.watermark having max(o.nominal) > j.watermark order by j.name`,
		"the job %s has dealt with its instants up to %s, and one of %s has a row: it may be decided on again"),
	// The key of such a run is file/CLAIM/GENERATION.
	rowCheck("claim-once", "a claimed content has one success",
		`select rtrim(key, '0123456789'), count(*), min(id), max(id) from runs where key like 'file/%' and outcome in ('success', 'nothing', 'partial')
			group by rtrim(key, '0123456789') having count(*) > 1 order by 3`,
		"the content of the claim %s has %d runs that ended well, from run %d to run %d: it was done more than once"),
	rowCheck("claim-run", "a claimed content is in work exactly as long as its run is, and has that run's outcome",
		`select c.id, c.job, c.path, c.outcome, c.run, coalesce(r.state, 'not there'), coalesce(r.outcome, '') from claims c left join runs r on r.id = c.run
			where c.own = 0 and c.run <> 0 and ((c.outcome = '' and (r.id is null or r.state = 'finished')) or (r.state = 'finished' and r.outcome <> c.outcome) or (r.state <> 'finished' and c.outcome <> ''))
			order by c.id`,
		"the claim %[1]d of the job %[2]s on %[3]s has the outcome %[4]q, and its run %[5]d is %[6]s with the outcome %[7]q"),
	rowCheck("wake-one", "an agent has one wake planned at most",
		`select agent, count(*) from slots group by agent having count(*) > 1 order by agent`,
		"the agent %s has %d wakes planned"),
	rowCheck("epochs", "no run id belongs to two epochs, and the last epoch goes on",
		`select e.n, e.id, e.first_run, e.last_run, coalesce(f.first_run, 0) from epochs e left join epochs f on f.n = e.n + 1
			where (f.n is null and e.last_run <> 0) or (f.n is not null and (e.last_run >= f.first_run or (e.last_run = 0 and e.first_run <> 0 and exists (select 1 from runs where runs.id >= f.first_run and runs.id <= e.last_run))))
			order by e.n`,
		"the epoch %d (%s) has the runs from %d to %d (0: it goes on), and the next begins with run %d"),
}

// auditRuns returns the checks of runs and their records.
func auditRuns() []Check {
	return []Check{
		rowCheck("run-state", "a finished run has an outcome and an end, any other has neither, and one that waits says for what",
			`select id, job, state, waiting_for, outcome, finished_at as t_finished from runs
				where state not in ('queued', 'running', 'waiting', 'finished') or (state = 'finished') <> (outcome <> '') or (state = 'finished') <> (finished_at <> 0) or (state = 'waiting') <> (waiting_for <> '')
				order by id`,
			"run %d of the job %q is %s (waiting for %q) with the outcome %q and the end %s"),
		clockCheck("run-times", "a run ends after it began",
			`select id, job, started_at as t_started, finished_at as t_finished from runs where started_at <> 0 and finished_at <> 0 and finished_at < started_at order by id`,
			"run %d of the job %q began at %s and ended at %s"),
		rowCheck("attempt-numbers", "the attempts of a run are numbered from 1 without a gap, up to the one it is at",
			`select r.id, r.job, r.attempt, coalesce(a.n, 0), coalesce(a.low, 0), coalesce(a.high, 0) from runs r
				left join (select run, count(*) as n, min(number) as low, max(number) as high from attempts group by run) a on a.run = r.id
				where coalesce(a.n, 0) <> r.attempt or coalesce(a.high, 0) <> r.attempt or coalesce(a.low, 0) <> case when r.attempt = 0 then 0 else 1 end order by r.id`,
			"run %d of the job %q is at attempt %d, and has %d of them, from %d to %d"),
		rowCheck("attempt-fence", "only the last attempt of a run that is on may be on",
			`select a.run, a.number, a.state, r.state, r.attempt from attempts a join runs r on r.id = a.run
				where (a.state = 'running') <> (r.state = 'running' and r.attempt = a.number) or (a.state = 'running') <> (a.finished_at = 0)
				order by a.run, a.number`,
			"of run %d the attempt %d is %s, while the run is %s at attempt %d"),
		clockCheck("attempt-order", "an attempt begins after the one before has ended",
			`select a.run, a.number, a.finished_at as t_finished, b.number, b.started_at as t_started from attempts a join attempts b on b.run = a.run and b.number = a.number + 1
				where b.started_at < a.finished_at order by a.run, a.number`,
			"of run %d the attempt %d ended at %s, and attempt %d began at %s already"),
		rowCheck("call-ended", "no call is on whose attempt is over",
			`select c.run, c.attempt, c.step, c.position, c.tool, a.state from calls c join attempts a on a.run = c.run and a.number = c.attempt
				where c.state = 'running' and a.state <> 'running' order by c.run, c.attempt, c.step, c.position`,
			"of run %d the call %[3]d.%[4]d of attempt %[2]d (%[5]s) is still on, and the attempt is %[6]s: nobody will know what became of it"),
		rowCheck("call-step", "each call belongs to a step, each step to an attempt",
			`select 'call', c.run, c.attempt, c.step from calls c where not exists (select 1 from steps s where s.run = c.run and s.attempt = c.attempt and s.number = c.step)
				union all select 'step', s.run, s.attempt, s.number from steps s where not exists (select 1 from attempts a where a.run = s.run and a.number = s.attempt)`,
			"a %s of run %d, attempt %d, step %d, belongs to nothing that is on record"),
		rowCheck("run-rows", "what is recorded of a run goes with it, and nothing is of a run that never was",
			runRows(),
			"there are rows in %[1]s of run %[2]d (%[3]d of them), which is not there"),
		rowCheck("event-numbers", "the events of a run are numbered from 1 without a gap",
			`select run, count(*), min(seq), max(seq) from events where run <> 0 group by run having count(*) <> max(seq) or min(seq) <> 1 order by run`,
			"run %d has %d events, numbered from %d to %d"),
		rowCheck("question-asked", "a run that waits for a person has an open item in the inbox",
			`select r.id, r.job, r.waiting_for from runs r where r.state = 'waiting' and r.waiting_for in ('input', 'approval', 'pause')
				and not exists (select 1 from inbox i where i.run = r.id and i.state = 'open' and i.kind <> 'info') order by r.id`,
			"run %d of the job %q waits for %s, and nobody is asked: it would wait for ever"),
		rowCheck("question-needed", "nobody is asked for a run that is over",
			`select i.id, i.kind, i.run, coalesce(r.state, 'not there') from inbox i left join runs r on r.id = i.run
				where i.state = 'open' and i.run <> 0 and i.kind not in ('info', 'database') and (r.id is null or r.state = 'finished') order by i.id`,
			"the item %d of the inbox (%s) is open, and its run %d is %s"),
		{
			Name: "notice-run", Promise: "a notice is of a run that the ledger has given",
			find: func(ctx context.Context, a *auditor) error {
				// Compare with the last assigned id, because retention may have removed the newest
				// run, and a notice outlives its run.
				return a.each(ctx, a.check.say, `select id, run, channel, state from outbox where state not in ('pending', 'delivered', 'unverified', 'failed') or run > (`+a.db.RunIDs.Newest+`) order by id`)
			},
			say: "the notice %d is of run %d, for the channel %s, and %s; no such run or state is known",
		},
		rowCheck("review-run", "a workspace that is to be looked at knows the run that left it so",
			`select w.id, w.name, w.review from workspaces w where w.review <> 0 and not exists (select 1 from runs r where r.id = w.review) order by w.id`,
			"the workspace %d (%s) is to be looked at because of run %d, which is not there"),
	}
}

// runRows returns a query for rows of runs that do not exist. It omits the outbox, because a
// pending notice outlives its run.
func runRows() string {
	var parts []string
	for _, table := range []string{"attempts", "steps", "calls", "inbox", "file_ops", "deliveries", "reservations", "blobs", "events"} {
		parts = append(parts, fmt.Sprintf(`select '%[1]s', run, count(*) from %[1]s where run > 0 and not exists (select 1 from runs r where r.id = %[1]s.run) group by run`, table))
	}
	parts = append(parts, `select 'artifacts', run, count(*) from artifacts where workspace = 0 and not exists (select 1 from runs r where r.id = artifacts.run) group by run`)
	return strings.Join(parts, " union all ") + " order by 2, 1"
}

// auditMoney lists the checks of model costs.
var auditMoney = []Check{
	rowCheck("spent-run", "what a run took is the sum of its steps",
		`select r.id, r.job, r.tokens_in, r.tokens_out, r.cost_micro_usd, s.tin, s.tout, s.cost from runs r
			join (select run, cast(sum(tokens_in) as bigint) as tin, cast(sum(tokens_out) as bigint) as tout, cast(sum(cost_micro_usd) as bigint) as cost from steps group by run) s on s.run = r.id
			where r.state <> 'running' and (r.tokens_in <> s.tin or r.tokens_out <> s.tout or r.cost_micro_usd <> s.cost) order by r.id`,
		"run %d of the job %q took %d and %d tokens and %d millionths of a dollar, and its steps %d, %d and %d"),
	rowCheck("spent-day", "what all agents took in a day is the sum of theirs, and of it the jobs took no more",
		`select d.day, d.tokens, d.cost_micro_usd, coalesce(a.tokens, 0), coalesce(a.cost, 0), coalesce(j.tokens, 0), coalesce(j.cost, 0)
			from (select period as day, cast(sum(case when scope = 'daemon' then tokens else 0 end) as bigint) as tokens, cast(sum(case when scope = 'daemon' then cost_micro_usd else 0 end) as bigint) as cost_micro_usd from spending where length(period) = 10 group by period) d
			left join (select period as day, cast(sum(tokens) as bigint) as tokens, cast(sum(cost_micro_usd) as bigint) as cost from spending where scope = 'agent' group by period) a on a.day = d.day
			left join (select period as day, cast(sum(tokens) as bigint) as tokens, cast(sum(cost_micro_usd) as bigint) as cost from spending where scope = 'job' group by period) j on j.day = d.day
			where d.tokens <> coalesce(a.tokens, 0) or d.cost_micro_usd <> coalesce(a.cost, 0) or d.tokens < coalesce(j.tokens, 0) or d.cost_micro_usd < coalesce(j.cost, 0) order by d.day`,
		"on %s all took %d tokens and %d millionths of a dollar, the agents %d and %d, the jobs %d and %d"),
	rowCheck("spent-month", "a month holds at least what its days do",
		`select m.period, m.scope, m.name, m.tokens, m.cost_micro_usd, d.tokens, d.cost from spending m
			join (select substr(period, 1, 7) as month, scope, name, cast(sum(tokens) as bigint) as tokens, cast(sum(cost_micro_usd) as bigint) as cost from spending where length(period) = 10 group by substr(period, 1, 7), scope, name) d
			on d.month = m.period and d.scope = m.scope and d.name = m.name where m.tokens < d.tokens or m.cost_micro_usd < d.cost order by m.period`,
		"in %s the %s %q took %d tokens and %d millionths of a dollar, and its days hold %d and %d"),
	{
		Name: "spent-steps", Promise: "the days hold at least what their steps took",
		find: auditSteps,
	},
	rowCheck("reserved-run", "only an attempt that is on has something reserved",
		`select h.id, h.run, h.attempt, h.day, coalesce(r.state, 'not there'), coalesce(r.attempt, 0) from reservations h left join runs r on r.id = h.run
			where r.id is null or r.state <> 'running' or r.attempt <> h.attempt order by h.id`,
		"the reservation %d is of run %d, attempt %d (%s), and the run is %s at attempt %d: its room in the budget is lost"),
	rowCheck("reserved-day", "what is reserved of a day is the sum of its reservations",
		`select s.period, s.reserved_tokens, s.reserved_micro_usd, coalesce(h.tokens, 0), coalesce(h.cost, 0) from spending s
			left join (select day, cast(sum(tokens_in + tokens_out) as bigint) as tokens, cast(sum(cost_micro_usd) as bigint) as cost from reservations group by day) h on h.day = s.period
			where s.scope = 'daemon' and length(s.period) = 10 and (s.reserved_tokens <> coalesce(h.tokens, 0) or s.reserved_micro_usd <> coalesce(h.cost, 0)) order by s.period`,
		"of %s there are %d tokens and %d millionths of a dollar reserved, and the reservations are of %d and %d"),
}

// auditSteps compares the spending of all days with the steps in that time. Steps of removed runs
// are missing, so the spending may be higher. It skips two days at the start, because a day may
// begin up to a day apart in another time zone.
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
	since := store.Millis(day.AddDate(0, 0, 2))
	if err := a.tx.QueryRowContext(ctx, `select cast(coalesce(sum(cost_micro_usd), 0) as bigint) from steps where started_at >= $1`, since).Scan(&stepped); err != nil {
		return err
	}
	if stepped > spent {
		return a.report("since %s the steps took %d millionths of a dollar, and the days hold %d: less is counted than was spent", first.String, stepped, spent)
	}
	return nil
}

// auditTold lists the checks of incidents, their notices, and the obstacles of runs.
var auditTold = []Check{
	rowCheck("incident-one", "a job has one open incident of a kind at most",
		`select job, min(agent), kind, count(*) from incidents where closed_at = 0 group by job, case job when '' then agent else '' end, kind having count(*) > 1 order by 1, 2, 3`,
		"the job %q of the agent %s has of the kind %q %d open incidents: failures of one are told of as new"),
	rowCheck("incident-state", "an incident has failures, and is over exactly when a run of its own job has closed it",
		`select i.id, i.job, i.kind, i.failures, i.closed_by, coalesce(r.job, '') from incidents i left join runs r on r.id = i.closed_by and i.closed_by <> 0
			where i.failures < 1 or i.first_run < 1 or i.last_run < 1 or (i.closed_at <> 0) <> (i.closed_by <> 0) or r.job <> i.job or (i.job = '' and r.agent <> i.agent) or (i.note <> '' and i.acked_at = 0)
			order by i.id`,
		"the incident %d of the job %q (%s) has %d failures and was closed by run %d (0: by none) of the job %q"),
	// The outcome comes from the events, because the run may have been retried since.
	rowCheck("incident-closed", "the run that closed an incident has ended well",
		`select i.id, i.job, i.kind, r.id from incidents i join runs r on r.id = i.closed_by where i.closed_by <> 0
			and not exists (select 1 from events e where e.run = r.id and e.run <> 0 and e.kind = 'run.finished' and (e.data like '%"outcome":"success"%' or e.data like '%"outcome":"nothing"%'))
			order by i.id`,
		"the incident %d of the job %q (%s) was closed by run %d, which has not succeeded: its failures are told of no more"),
	// Notices are removed with their runs, so there may be fewer. Notices to a fallback channel are
	// copies and do not count.
	rowCheck("incident-told", "an incident has counted its notices",
		`select i.id, i.job, i.kind, i.told, count(*) from incidents i join outbox o on o.incident = i.id and o.incident <> 0 and coalesce(o.key, '') not like '`+outbox.FallbackKey+`%'
			group by i.id, i.job, i.kind, i.told having count(*) > i.told order by i.id`,
		"the incident %d of the job %q (%s) was told of %d times, and there are %d notices of it"),
	clockCheck("incident-times", "an incident is opened, fails last, and is closed in this order",
		`select id, job, kind, opened_at as t_opened, last_at as t_last, closed_at as t_closed from incidents
			where last_at < opened_at or (closed_at <> 0 and closed_at < last_at) or (acked_at <> 0 and acked_at < opened_at) order by id`,
		"the incident %d of the job %q (%s) was opened at %s, failed last at %s, and was closed at %s"),
	rowCheck("run-blocked", "what keeps a run from starting is named, and keeps none that has started or ended",
		`select id, job, state, blocked_by from runs
			where (blocked_since <> 0) <> (blocked_by <> '') or (blocked_since = 0 and blocked_until <> 0) or (blocked_since <> 0 and blocked_until = 0 and state not in ('queued', 'waiting'))
			order by id`,
		"run %d of the job %q is %s, and kept from starting by %q"),
	clockCheck("blocked-times", "what was in the way of a run is over after it began",
		`select 'run', cast(id as text), blocked_since as t_since, blocked_until as t_until from runs where blocked_until <> 0 and blocked_until < blocked_since
			union all select 'obstacle', source, since, over_at from obstacles where over_at <> 0 and over_at < since order by 1, 2`,
		"for the %s %s something was in the way from %s to %s"),
}

// auditKept returns the checks of artifacts, large values, and the SQLite file.
func auditKept() []Check {
	return []Check{
		{Name: "value-owner", Promise: "a large value that the record refers to is kept for the run that does", find: auditReferences},
		{Name: "value-file", Promise: "each large value has its file or object, whose content has the hash of its name", find: auditBlobs},
		{Name: "artifact", Promise: "the bytes of an artifact are there, with its size and its hash", find: auditArtifacts},
		{Name: intact, Promise: "SQLite finds nothing wrong with the file", find: auditFile},
	}
}

func auditReferences(ctx context.Context, a *auditor) error {
	for _, r := range blob.References {
		query := fmt.Sprintf(`select t.run, t.%[2]s from %[1]s t where substr(t.%[2]s, 1, %[4]d) = '%[5]s'
			and not exists (select 1 from blobs b where b.hash = substr(t.%[2]s, %[4]d + 1) and b.run = %[3]s)`,
			r.Table, r.Column, strings.NewReplacer("workspace", "t.workspace", "run", "t.run").Replace(r.Owner), len(blob.Mark), blob.Mark)
		if err := a.each(ctx, "run %d refers in "+r.Table+" to the large value %s, which is not kept for it: retention may remove it", query); err != nil {
			return err
		}
	}
	return nil
}

func auditBlobs(ctx context.Context, a *auditor) error {
	return a.rows(ctx, func(row []any) error {
		hash, _ := row[0].(string)
		fault := a.blobs.Fault(ctx, hash)
		if fault == "" {
			return nil
		}

		// The value may have been removed with its runs since the audit began.
		if kept, err := store.Value[int](store.Reads(ctx, a.db), `select count(*) from blobs where hash = $1`, hash); err != nil || kept == 0 {
			return err
		}
		return a.report("the large value %s of %d runs or workspaces, the first of them %d, %s: restore the home from a backup", hash, row[1], row[2], fault)
	}, `select hash, count(*), min(run) from blobs where run <> 0 group by hash order by hash`)
}

// auditArtifacts checks the artifacts in the database. Other checks cover those stored as large
// values.
func auditArtifacts(ctx context.Context, a *auditor) error {
	return a.rows(ctx, func(row []any) error {
		text, _ := row[4].(string)
		content, err := base64.StdEncoding.DecodeString(text)
		sum := sha256.Sum256(content)
		switch {
		case err != nil:
			return a.report("the bytes of the artifact %d (%s) of run %d are damaged: %v", row[0], row[1], row[5], err)
		case int64(len(content)) != row[2] || hex.EncodeToString(sum[:]) != row[3]:
			return a.report("the artifact %d (%s) of run %d holds %d bytes, which are not the %d that were shared", row[0], row[1], row[5], len(content), row[2])
		}
		return nil
	}, fmt.Sprintf(`select id, name, size, hash, content, run from artifacts where substr(content, 1, %d) <> '%s' order by id`, len(blob.Mark), blob.Mark))
}

// auditFile checks the SQLite file. PostgreSQL checks its own files.
func auditFile(ctx context.Context, a *auditor) error {
	if a.db.Path == "" {
		return nil
	}
	var verdict string
	if err := a.tx.QueryRowContext(ctx, `pragma quick_check(1)`).Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return a.report("the ledger %s is damaged: %s", a.db.Path, verdict)
	}
	return nil
}
