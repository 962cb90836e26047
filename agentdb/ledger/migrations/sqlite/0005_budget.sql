-- What models took, by day: one row for the daemon, each agent and each job. What is
-- reserved may still be taken by calls that are on; what is not reserved any more is spent.
create table spending (
    day                text    not null,
    scope              text    not null,
    name               text    not null,
    tokens             integer not null default 0,
    cost_micro_usd     integer not null default 0,
    reserved_tokens    integer not null default 0,
    reserved_micro_usd integer not null default 0,
    primary key (day, scope, name)
) without rowid;

-- Calls of models that are on, or were when their process ended.
create table reservations (
    id             integer primary key autoincrement,
    run            integer not null,
    attempt        integer not null,
    step           integer not null,
    day            text    not null,
    agent          text    not null,
    job            text    not null,
    tokens_in      integer not null,
    tokens_out     integer not null,
    cost_micro_usd integer not null,
    at             integer not null
);
create index reservations_by_run on reservations (run, attempt);

alter table steps add column cost_micro_usd integer not null default 0;
