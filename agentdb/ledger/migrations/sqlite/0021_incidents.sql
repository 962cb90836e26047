-- A job and a kind of error that it fails with, from the first failure to the next success. Failures of the same kind are
-- counted there, and told of now and then.
create table incidents (
    id        integer primary key autoincrement,
    job       text    not null default '', -- '' is of an agent's own runs
    agent     text    not null default '',
    kind      text    not null,
    failures  integer not null default 0,
    error     text    not null default '', -- of the last failure
    first_run integer not null,
    last_run  integer not null,
    opened_at integer not null,
    last_at   integer not null,
    told      integer not null default 0, -- notices of it
    acked_at  integer not null default 0,
    note      text    not null default '', -- of who acknowledged it
    closed_at integer not null default 0,
    closed_by integer not null default 0 -- the run that succeeded
);
-- The agent of a job may change while it fails.
create unique index incidents_open on incidents (job, kind, (case job when '' then agent else '' end)) where closed_at = 0;
create index incidents_now on incidents (id) where closed_at = 0;
create index incidents_now_by_job on incidents (job, id) where closed_at = 0;
create index incidents_by_job on incidents (job, last_at);

-- The incident that a notice is about.
alter table outbox add column incident integer not null default 0;

-- Up to when the digests of a channel have told.
create table digests (
    channel text    primary key,
    through integer not null
);
