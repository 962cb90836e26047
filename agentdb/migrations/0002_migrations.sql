-- What changed the schema, and what would take it back. The files beside the database are
-- written after this, from this, so a crash between leaves no file of something undone.
create table _migrations (
  id          integer primary key autoincrement,
  slug        text not null,
  description text not null,
  up          text not null,
  down        text not null,
  at          text not null,
  run_id      integer not null
);
