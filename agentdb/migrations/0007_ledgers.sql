-- The ledgers whose runs have written here, each epoch of one by its random id. What is kept under the
-- id of a run is kept under its ledger's number too. A run belongs to the ledger within whose
-- first_run and last_run it is; those that do not hold the database have none. The first is the one of
-- rows from before this was recorded: the next opening fills in its id, and changes no row for it.
create table _ledgers (
  n         integer primary key,
  id        text not null unique,
  first_run integer not null,
  last_run  integer not null,
  turn      integer not null, -- counts up with each that takes the database; the highest has it
  newest    integer not null, -- the highest id of its runs that have written
  at        text not null
);
insert into _ledgers select 1, '', 0, 9223372036854775807, 1,
  max(coalesce((select max(run_id) from _changelog), 0), coalesce((select max(run) from _calls), 0)), '';

alter table _changelog add column ledger integer not null default 1;
alter table _undone add column ledger integer not null default 1;
alter table _views add column ledger integer not null default 1;

-- A new key needs a new table. The journal is small beside the rest: it holds 90 days, and no rows.
create table _journal (
  ledger integer not null,
  run    integer not null,
  key    text not null,
  op     text not null,
  result text not null,
  at     text not null,
  primary key (ledger, run, key)
) without rowid;
insert into _journal select 1, run, key, op, result, at from _calls;
drop table _calls;
alter table _journal rename to _calls;
