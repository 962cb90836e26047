-- What the hooks of the skill were told for this agent (OSL-06), in one row.
create table lifecycle (
  id      integer primary key check (id = 1),
  version text not null default '', -- of the skill that was installed or upgraded to
  enabled integer not null default 0,
  config  text not null default '', -- the hash of the settings that it was configured with
  ledger  text not null default '', -- of the run that calls hooks now
  run     integer not null default 0
) strict;
