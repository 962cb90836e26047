-- State that outlives runs, of one skill for one agent.
create table workspaces (
    id             integer primary key autoincrement,
    agent          text    not null,
    skill          text    not null,
    name           text    not null,
    status         text    not null, -- active, paused, archived
    status_by      text    not null, -- user, agent
    phase          text    not null default '',
    role           text    not null default '',
    state          text    not null, -- JSON object
    schema_version text    not null default '',
    lock_version   integer not null, -- counts the writes, from 1
    review         integer not null default 0, -- the run that left it half changed, until its owner has decided
    created_at     integer not null,
    updated_at     integer not null
);
create unique index workspaces_by_name on workspaces (agent, skill, name);
create index workspaces_review on workspaces (review) where review <> 0;

-- What happened to a workspace. Rows are only added, and stay when their runs are removed.
create table workspace_events (
    id           integer primary key autoincrement,
    workspace    integer not null,
    run          integer not null default 0, -- 0: its owner
    attempt      integer not null default 0,
    key          text    not null default '', -- of the call, which writes once
    at           integer not null,
    kind         text    not null,
    lock_version integer not null, -- after it
    data         text    not null default ''
);
create unique index workspace_events_by_call on workspace_events (run, key) where key <> '';
create index workspace_events_by_run on workspace_events (run, id) where run <> 0;
create index workspace_events_by_workspace on workspace_events (workspace, id);

-- Where a run can be begun again from.
create table checkpoints (
    id        integer primary key autoincrement,
    workspace integer not null default 0, -- 0: the run has none
    run       integer not null,
    key       text    not null default '', -- of the call; '' for the one with which the run began
    at        integer not null,
    phase     text    not null,
    role      text    not null,
    step      text    not null,
    run_state text    not null, -- JSON
    state     text    not null, -- of the workspace, JSON
    artifact  integer not null  -- the last artifact of the ledger then
);
create index checkpoints_by_run on checkpoints (run, id);
create index checkpoints_by_workspace on checkpoints (workspace, id) where workspace <> 0;

-- The workspace that a run works in, and the checkpoint that it began from; 0 for none.
alter table runs add column workspace integer not null default 0;
alter table runs add column checkpoint integer not null default 0;
create index runs_by_workspace on runs (workspace, id) where workspace <> 0;

-- Artifacts of a workspace: what a skill says of them, and what their owner has decided.
alter table artifacts add column workspace integer not null default 0;
alter table artifacts add column type text not null default '';
alter table artifacts add column title text not null default '';
alter table artifacts add column status text not null default '';
alter table artifacts add column role text not null default '';
alter table artifacts add column approval text not null default ''; -- pending, approved, rejected
alter table artifacts add column approval_ref text not null default '';
alter table artifacts add column superseded_by integer not null default 0;
alter table artifacts add column discarded integer not null default 0;
create index artifacts_by_workspace on artifacts (workspace, id) where workspace <> 0;

-- The JSON Schema of an answer; '' for a text.
alter table inbox add column input_schema text not null default '';
