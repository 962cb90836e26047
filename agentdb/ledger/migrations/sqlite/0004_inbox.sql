-- What waits for a person.
create table inbox (
    id          integer primary key autoincrement,
    run         integer not null,
    attempt     integer not null,
    job         text    not null,
    agent       text    not null,
    kind        text    not null,
    title       text    not null,
    message     text    not null,
    options     text    not null,
    multiple    integer not null,
    state       text    not null,
    answer      text    not null default '',
    created_at  integer not null,
    expires_at  integer not null,
    closed_at   integer not null default 0
);
create index inbox_by_run on inbox (run);
create index inbox_open on inbox (expires_at) where state = 'open';

-- Attempts that ended in a question are no tries that failed.
alter table runs add column parks integer not null default 0;
