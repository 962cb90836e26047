-- What the host knows about each table that the agent made.
create table _tables_meta (
  name       text primary key collate nocase,
  purpose    text not null,
  created_at text not null,
  run_id     integer not null
) without rowid;

-- Who changed what (OSA-61). Inserts and imports have one row per chunk (C-14).
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
  sql     text
);
create index _changelog_run on _changelog(run_id, id);

-- The call journal: what a call has already done, so that a resumed run repeats nothing.
create table _calls (
  run    integer not null,
  key    text not null,
  op     text not null,
  result text not null,
  at     text not null,
  primary key (run, key)
) without rowid;
