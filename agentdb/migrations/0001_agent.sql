-- Tables of the host in an agent's database. Queries of the agent cannot use them.

-- Descriptions of the tables that the agent made.
create table _tables_meta (
  name       text primary key collate nocase,
  purpose    text not null,
  created_at text not null,
  run_id     integer not null
) without rowid;

-- The changelog (OSA-61). Inserts and imports have one row per chunk (C-14).
create table _changelog (
  id      integer primary key autoincrement,
  ts      text not null,
  run_id  integer not null,
  actor   text not null check (actor in ('agent', 'user', 'migration', 'system')),
  op      text not null check (op in ('insert', 'update', 'soft_delete', 'restore', 'schema', 'raw', 'import')),
  "table" text not null,
  pk      text,
  before  text,
  after   text,
  sql     text,
  ledger  integer not null default 1 -- n in _ledgers
);
create index _changelog_run on _changelog(run_id, id);

-- The call journal. A resumed run gets the stored result of a call that was already made.
create table _calls (
  ledger integer not null,
  run    integer not null,
  key    text not null,
  op     text not null,
  result text not null,
  at     text not null,
  primary key (ledger, run, key)
) without rowid;

-- Changes of the schema with their reversal. The files beside the database are written from this table.
create table _migrations (
  id          integer primary key autoincrement,
  slug        text not null,
  description text not null,
  up          text not null,
  down        text not null,
  at          text not null,
  run_id      integer not null
);

-- Saved queries, each with its last result (OSA-60).
create table _views (
  name         text primary key collate nocase,
  sql          text not null,
  render_hint  text not null check (render_hint in ('table', 'bar', 'line', 'pie', 'number')),
  refresh      text not null,
  description  text not null,
  pinned       integer not null default 0,
  created_at   text not null,
  updated_at   text not null,
  run_id       integer not null,
  result       text,
  refreshed_at text,
  params       text not null default '[]', -- [{"name","type","default"}]
  ledger       integer not null default 1
) without rowid;

-- Undone runs: their changes up to a row of the changelog. Changes of a later attempt come after it.
create table _undone (
  id     integer primary key autoincrement,
  run_id integer not null,
  upto   integer not null,
  at     text not null,
  actor  text not null,
  forced integer not null,
  ledger integer not null default 1
);
create index _undone_run on _undone(run_id);

-- The agent that the database belongs to.
create table _owner (
  agent text not null,
  since text not null
);

-- The time at which the owner was told that the quota is nearly used (OSA-62). Empty while there is room.
create table _quota_told (
  at text not null
);

-- Epochs of the ledgers whose runs have written here, by their random ids. A run belongs to the row with its id between
-- first_run and last_run; rows of ledgers that do not hold the database have no runs. The id of the first row is filled
-- in when a ledger takes the new database.
create table _ledgers (
  n         integer primary key,
  id        text not null unique,
  first_run integer not null,
  last_run  integer not null,
  turn      integer not null, -- increases with each ledger that takes the database; the highest holds it
  newest    integer not null, -- the highest id of its runs that have written
  at        text not null
);
insert into _ledgers values (1, '', 0, 9223372036854775807, 1, 0, '');
