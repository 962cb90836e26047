-- One row may stand for a long stretch of missed instants, up to and including through.
alter table occurrences add column source   text    not null default '';
alter table occurrences add column through  integer not null default 0;
alter table occurrences add column instants integer not null default 1;
create index occurrences_by_run on occurrences (run) where run <> 0;
create index occurrences_by_time on occurrences (nominal);
create index occurrences_long on occurrences (through) where through <> 0;

-- What happened outside of runs, for its retention.
create index events_alone on events (job, at) where run = 0;

-- A job may have a million runs: what decides about its next one reads the few that are
-- not over, or the last that are.
create index runs_open on runs (job, id) where state <> 'finished';
create index runs_ended on runs (job, finished_at, id, outcome) where state = 'finished';
create index runs_by_self on runs (agent, started_at) where triggered_by = 'self';
create index runs_by_wake on runs (agent, id) where triggered_by = 'self';

create table pauses (
    id        integer primary key autoincrement,
    scope     text    not null,
    name      text    not null,
    since     integer not null,
    until     integer not null,
    ended_at  integer not null default 0,
    reason    text    not null,
    paused_by text    not null
);

create table slots (
    id            integer primary key autoincrement,
    agent         text    not null unique,
    at            integer not null,
    asked_at      integer not null,
    instructions  text    not null,
    context_views text    not null,
    priority      text    not null,
    on_miss       text    not null,
    scheduled_by  text    not null,
    run           integer not null,
    job           text    not null,
    depth         integer not null,
    deferred      integer not null default 0,
    created_at    integer not null
);
