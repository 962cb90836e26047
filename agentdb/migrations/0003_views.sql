-- Queries that the agent saved under a name, each with its last result (OSA-60).
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
  refreshed_at text
) without rowid;

-- Which runs were taken back: their changes up to one of the changelog. What a run does in
-- a later attempt comes after it.
create table _undone (
  id     integer primary key autoincrement,
  run_id integer not null,
  upto   integer not null,
  at     text not null,
  actor  text not null,
  forced integer not null
);
create index _undone_run on _undone(run_id);
