package ledger

// auditTold are the checks of what people are told: of incidents, and of what keeps runs from starting.
var auditTold = []AuditCheck{
	{
		Name: "incident-one", Promise: "a job has one open incident of a kind at most",
		query: `select job, min(agent), kind, count(*) from incidents where closed_at = 0 group by job, case job when '' then agent else '' end, kind having count(*) > 1 order by 1, 2, 3`,
		say:   "the job %q of the agent %s has of the kind %q %d open incidents: failures of one are told of as new",
	},
	{
		Name: "incident-state", Promise: "an incident has failures, and is over exactly when a run of its own job has closed it",
		query: `select i.id, i.job, i.kind, i.failures, i.closed_by, coalesce(r.job, '') from incidents i left join runs r on r.id = i.closed_by and i.closed_by <> 0
			where i.failures < 1 or i.first_run < 1 or i.last_run < 1 or (i.closed_at <> 0) <> (i.closed_by <> 0) or r.job <> i.job or (i.job = '' and r.agent <> i.agent) or (i.note <> '' and i.acked_at = 0)
			order by i.id`,
		say: "the incident %d of the job %q (%s) has %d failures and was closed by run %d (0: by none) of the job %q",
	},
	{
		// What it came to is in its events: somebody may have had the run tried again since.
		Name: "incident-closed", Promise: "the run that closed an incident has ended well",
		query: `select i.id, i.job, i.kind, r.id from incidents i join runs r on r.id = i.closed_by where i.closed_by <> 0
			and not exists (select 1 from events e where e.run = r.id and e.run <> 0 and e.kind = 'run.finished' and (e.data like '%"outcome":"success"%' or e.data like '%"outcome":"nothing"%'))
			order by i.id`,
		say: "the incident %d of the job %q (%s) was closed by run %d, which has not succeeded: its failures are told of no more",
	},
	{
		// Notices go with their runs, so that there may be fewer. What another channel is told in place of one is a copy.
		Name: "incident-told", Promise: "an incident has counted its notices",
		query: `select i.id, i.job, i.kind, i.told, count(*) from incidents i join outbox o on o.incident = i.id and o.incident <> 0 and coalesce(o.key, '') not like '` + FallbackKey + `%'
			group by i.id, i.job, i.kind, i.told having count(*) > i.told order by i.id`,
		say: "the incident %d of the job %q (%s) was told of %d times, and there are %d notices of it",
	},
	{
		Name: "incident-times", Promise: "an incident is opened, fails last, and is closed in this order", Clock: true,
		query: `select id, job, kind, opened_at as t_opened, last_at as t_last, closed_at as t_closed from incidents
			where last_at < opened_at or (closed_at <> 0 and closed_at < last_at) or (acked_at <> 0 and acked_at < opened_at) order by id`,
		say: "the incident %d of the job %q (%s) was opened at %s, failed last at %s, and was closed at %s",
	},
	{
		Name: "run-blocked", Promise: "what keeps a run from starting is named, and keeps none that has started or ended",
		query: `select id, job, state, blocked_by from runs
			where (blocked_since <> 0) <> (blocked_by <> '') or (blocked_since = 0 and blocked_until <> 0) or (blocked_since <> 0 and blocked_until = 0 and state not in ('queued', 'waiting'))
			order by id`,
		say: "run %d of the job %q is %s, and kept from starting by %q",
	},
	{
		Name: "blocked-times", Promise: "what was in the way of a run is over after it began", Clock: true,
		query: `select 'run', cast(id as text), blocked_since as t_since, blocked_until as t_until from runs where blocked_until <> 0 and blocked_until < blocked_since
			union all select 'obstacle', source, since, over_at from obstacles where over_at <> 0 and over_at < since order by 1, 2`,
		say: "for the %s %s something was in the way from %s to %s",
	},
}
