-- What pages and listings ask for, of a million runs and twenty million events.
create index runs_by_agent on runs (agent, id);

-- What is rare is found by them, what is not is found soon without.
create index runs_by_outcome on runs (outcome, id) where outcome not in ('', 'success', 'nothing');
create index runs_by_job_outcome on runs (job, outcome, id) where outcome not in ('', 'success', 'nothing');
create index runs_by_agent_outcome on runs (agent, outcome, id) where outcome not in ('', 'success', 'nothing');
create index runs_by_trigger on runs (triggered_by, id) where triggered_by not in ('schedule', 'watch');

create index occurrences_not_run on occurrences (nominal) where decision <> 'run';
create index outbox_by_run on outbox (run);
create index outbox_by_channel on outbox (channel, id);
create index outbox_undelivered on outbox (id) where state in ('pending', 'failed');
create index inbox_by_id on inbox (id) where state = 'open';

-- With the trigger, so that it goes before the one of all runs of an agent.
drop index runs_by_wake;
create index runs_by_wake on runs (agent, triggered_by, id) where triggered_by = 'self';
