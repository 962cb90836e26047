-- The storage of a skill (UNI-13).
create table entries (
  key   text primary key,
  value text not null -- JSON
) strict, without rowid;

-- Calls that have written, so that a repeated call writes once.
create table calls (
  ledger text not null,
  run    integer not null,
  key    text not null,
  at     text not null default (datetime('now')),
  primary key (ledger, run, key)
) strict, without rowid;

-- The size of all keys and values, kept up to date by triggers.
create table usage (
  one   integer primary key check (one = 1),
  bytes integer not null
) strict;
insert into usage (one, bytes) values (1, 0);

create trigger entries_added after insert on entries begin
  update usage set bytes = bytes + octet_length(new.key) + octet_length(new.value);
end;
create trigger entries_changed after update on entries begin
  update usage set bytes = bytes + octet_length(new.value) - octet_length(old.value);
end;
create trigger entries_removed after delete on entries begin
  update usage set bytes = bytes - octet_length(old.key) - octet_length(old.value);
end;

-- Hooks of the skill that were called for this agent (OSL-06), in one row.
create table lifecycle (
  id      integer primary key check (id = 1),
  version text not null default '', -- of the skill that was installed or upgraded to
  enabled integer not null default 0,
  config  text not null default '', -- hash of the settings
  ledger  text not null default '', -- of the run that calls hooks now
  run     integer not null default 0
) strict;

-- Tools that the module of the skill has registered for the agent (OSL-32).
create table tools (
  name    text primary key, -- without the prefix of the skill
  version text not null, -- of the manifest, when the tool was registered
  offer   text not null -- JSON
) strict, without rowid;
