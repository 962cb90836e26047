-- An approval is asked for one action: which it is, how a person reads it, and the call of the
-- run that it was used for.
alter table inbox add column tool text not null default '';
alter table inbox add column action text not null default '';
alter table inbox add column hash text not null default '';
alter table inbox add column used text not null default '';
alter table inbox add column reason text not null default '';
create index inbox_by_hash on inbox (agent, hash) where hash <> '';

-- What owners allow the runs of an agent until they take it back.
create table standing (
    id         integer primary key autoincrement,
    agent      text   not null,
    hash       text   not null,
    tool       text   not null, -- '' of a job's definition
    action     text   not null,
    item       integer not null, -- of the inbox, in which it was given
    created_at integer not null
);
create unique index standing_by_hash on standing (agent, hash);

-- What a run has met, as letters, and the weakest confinement of the programs that it started.
alter table runs add column taint text not null default '';
alter table runs add column tier text not null default '';

-- Agents whose database or files a run has written that had met untrusted content.
create table untrusted (
    agent text   primary key,
    run   integer not null, -- the first of them
    at    integer not null
);
