-- The storage of a skill (UNI-13).
create table entries (
  key   text primary key,
  value text not null -- JSON
) strict, without rowid;

-- The calls that have written, so that one which is made again writes once.
create table calls (
  ledger text not null,
  run    integer not null,
  key    text not null,
  at     text not null default (datetime('now')),
  primary key (ledger, run, key)
) strict, without rowid;
