-- The ledger in the SQL of SQLite. For PostgreSQL, toPostgres in postgres.go replaces the types and drops "without rowid",
-- and the lines that begin with --postgres are run too.
--
-- Times are milliseconds since 1970 in UTC, and 0 means none. Flags are 0 or 1. References hold the id of a row, and 0 means none.

-- Jobs of the configuration, including removed ones. Instants up to the watermark have been decided.
create table jobs (
    name          text    primary key,
    agent         text    not null,
    schedule_hash text    not null, -- the anchor is reset if it changes
    anchor        integer not null, -- the schedule counts from here
    watermark     integer not null,
    removed       integer not null default 0
);

-- Runs. A key makes a trigger start one run, however often it is delivered.
create table runs (
    id                  integer primary key autoincrement,
    key                 text    not null unique,
    job                 text    not null, -- '' for a run of an agent without a job
    agent               text    not null,
    triggered_by        text    not null,
    detail              text    not null, -- JSON, see Detail
    state               text    not null, -- queued, running, waiting, finished
    waiting_for         text    not null default '',
    not_before          integer not null default 0,
    outcome             text    not null default '',
    exit                text    not null default '',
    verified            integer not null default 0,
    attempt             integer not null default 0,
    interruptions       integer not null default 0,
    scheduled_at        integer not null default 0,
    queued_at           integer not null,
    started_at          integer not null default 0,
    finished_at         integer not null default 0,
    summary             text    not null default '',
    error               text    not null default '',
    steps               integer not null default 0,
    calls               integer not null default 0,
    tokens_in           integer not null default 0,
    tokens_out          integer not null default 0,
    tokens_cached       integer not null default 0,
    cost_micro_usd      integer not null default 0,
    cancel_reason       text    not null default '',
    parks               integer not null default 0, -- attempts that ended in a question; they do not count as failed
    taint               text    not null default '', -- letters: A untrusted content, B private data, C an effect beyond the host
    tier                text    not null default '', -- the weakest confinement of the programs that the run started
    estimated_tokens    integer not null default 0,
    estimated_micro_usd integer not null default 0,
    postponements       integer not null default 0, -- how often the run waited for a paused model
    workspace           integer not null default 0,
    checkpoint          integer not null default 0, -- the checkpoint that the run began from
    blocked_since       integer not null default 0,
    blocked_until       integer not null default 0, -- 0 while the run is blocked
    blocked_by          text    not null default '' -- JSON list of obstacles
);
create index runs_by_job on runs (job, id);
create index runs_due on runs (not_before) where not_before <> 0;
create index runs_unfinished on runs (state, id) where state <> 'finished';
-- A job can have a million runs. Decisions about the next run read only the unfinished or the last finished ones.
create index runs_open on runs (job, id) where state <> 'finished';
create index runs_ended on runs (job, finished_at, id, outcome) where state = 'finished';
create index runs_by_self on runs (agent, started_at) where triggered_by = 'self';
-- The trigger is a column, so that the planner prefers this index to runs_by_agent.
create index runs_by_wake on runs (agent, triggered_by, id) where triggered_by = 'self';
create index runs_by_workspace on runs (workspace, id) where workspace <> 0;
create index runs_by_agent on runs (agent, id);
-- Listings by outcome and trigger need an index only for rare values.
create index runs_by_outcome on runs (outcome, id) where outcome not in ('', 'success', 'nothing');
create index runs_by_job_outcome on runs (job, outcome, id) where outcome not in ('', 'success', 'nothing');
create index runs_by_agent_outcome on runs (agent, outcome, id) where outcome not in ('', 'success', 'nothing');
create index runs_by_trigger on runs (triggered_by, id) where triggered_by not in ('schedule', 'watch');

-- Decisions about scheduled instants. One row can stand for several missed instants, from nominal to through.
create table occurrences (
    job         text    not null,
    nominal     integer not null,
    actual      integer not null,
    decision    text    not null,
    reason      text    not null,
    run         integer not null default 0,
    recorded_at integer not null,
    source      text    not null default '', -- the expression of the schedule
    through     integer not null default 0,
    instants    integer not null default 1,
    primary key (job, nominal)
) without rowid;
create index occurrences_by_run on occurrences (run) where run <> 0;
create index occurrences_by_time on occurrences (nominal);
create index occurrences_long on occurrences (through) where through <> 0;
create index occurrences_not_run on occurrences (nominal) where decision <> 'run';

-- Attempts of runs.
create table attempts (
    run         integer not null,
    number      integer not null, -- from 1
    state       text    not null,
    started_at  integer not null,
    finished_at integer not null default 0,
    error       text    not null default '',
    node        integer not null default 0, -- of table nodes
    job         integer not null default 0, -- of River, that brings it to the node
    primary key (run, number)
) without rowid;

-- Steps of attempts: one answer of a model, or one call of a playbook.
create table steps (
    run                 integer not null,
    attempt             integer not null,
    number              integer not null,
    message             text    not null default '',
    body                text    not null default '',
    notices             text    not null default '[]', -- JSON
    tokens_in           integer not null default 0,
    tokens_out          integer not null default 0,
    tokens_cached       integer not null default 0,
    started_at          integer not null,
    finished_at         integer not null default 0,
    cost_micro_usd      integer not null default 0,
    within              text    not null default '', -- the key of the call that this step helped to answer
    model               text    not null default '', -- configured name of the model that answered
    estimated_tokens    integer not null default 0,
    estimated_micro_usd integer not null default 0,
    primary key (run, attempt, number)
);

-- Calls of tools in a step.
create table calls (
    run         integer not null,
    attempt     integer not null,
    step        integer not null,
    position    integer not null,
    id          text    not null, -- given by the model
    key         text    not null, -- the same in each attempt of the run
    tool        text    not null,
    args        text    not null,
    effect      text    not null,
    state       text    not null,
    envelope    text    not null default '', -- the result
    started_at  integer not null,
    finished_at integer not null default 0,
    primary key (run, attempt, step, position)
);

-- Events, for the log and for clients that follow it.
create table events (
    id   integer primary key autoincrement,
    run  integer not null default 0,
    seq  integer not null default 0, -- counts the events of the run from 1
    job  text    not null default '',
    at   integer not null,
    kind text    not null,
    data text    not null default ''
);
create unique index events_by_run on events (run, seq) where run <> 0;
create index events_by_job on events (job, id);
create index events_alone on events (job, at) where run = 0;

-- Files that watches have taken. Content that was taken once is not taken again.
create table claims (
    id         integer primary key autoincrement,
    job        text    not null,
    path       text    not null,
    hash       text    not null, -- SHA-256
    size       integer not null,
    mod_time   integer not null,
    run        integer not null,
    generation integer not null,
    outcome    text    not null default '',
    after      text    not null default '', -- state of the move after the run
    dest       text    not null default '',
    error      text    not null default '',
    own        integer not null default 0, -- 1 if a run of the job wrote the file
    unique (job, path, hash)
);
create index claims_by_run on claims (run);
create index claims_pending on claims (id) where after = 'pending';

-- Notices for the channels of the owner.
create table outbox (
    id         integer primary key autoincrement,
    key        text    unique, -- a notice with a known key is not added again
    run        integer not null default 0,
    job        text    not null default '',
    agent      text    not null default '',
    channel    text    not null,
    title      text    not null,
    body       text    not null default '',
    outcome    text    not null default '',
    state      text    not null, -- pending, sent, failed
    tries      integer not null default 0,
    next_at    integer not null,
    created_at integer not null,
    error      text    not null default '',
    view_ref   text    not null default '', -- view of the agent that the notice is about
    answer     text    not null default '', -- response of the channel
    incident   integer not null default 0
);
create index outbox_pending on outbox (next_at) where state = 'pending';
create index outbox_by_run on outbox (run);
create index outbox_by_channel on outbox (channel, id);
create index outbox_undelivered on outbox (id) where state in ('pending', 'failed');

-- Large values that are kept outside of the database, with the runs that need them.
create table blobs (
    hash text    not null, -- SHA-256
    run  integer not null,
    primary key (hash, run)
) without rowid;
create index blobs_by_run on blobs (run);

-- Pauses of the daemon, an agent or a job.
create table pauses (
    id        integer primary key autoincrement,
    scope     text    not null,
    name      text    not null,
    since     integer not null,
    until     integer not null,
    ended_at  integer not null default 0,
    reason    text    not null,
    paused_by text    not null
);

-- The next wake that an agent has scheduled for itself. Each agent has at most one.
create table slots (
    id            integer primary key autoincrement,
    agent         text    not null unique,
    at            integer not null,
    asked_at      integer not null, -- the time that the agent asked for
    instructions  text    not null,
    context_views text    not null, -- JSON
    priority      text    not null,
    on_miss       text    not null,
    scheduled_by  text    not null,
    run           integer not null, -- the run that scheduled it
    job           text    not null,
    depth         integer not null, -- wakes in a row
    deferred      integer not null default 0,
    created_at    integer not null
);

-- State of watches. The tree and its fingerprint are kept for mode converge.
create table watches (
    job       text    primary key,
    since     integer not null,
    print     text    not null default '',
    tree      text    not null default '',
    round     integer not null default 0,
    run       integer not null default 0,
    collected integer not null default 0 -- files up to this time were handed to a run
);

-- Items of the inbox: questions, approvals and information for the owner.
create table inbox (
    id           integer primary key autoincrement,
    run          integer not null,
    attempt      integer not null,
    job          text    not null,
    agent        text    not null,
    kind         text    not null,
    title        text    not null,
    message      text    not null,
    options      text    not null, -- JSON
    multiple     integer not null,
    state        text    not null,
    answer       text    not null default '',
    created_at   integer not null,
    expires_at   integer not null,
    closed_at    integer not null default 0,
    call         text    not null default '', -- key of the call that the item is about
    tool         text    not null default '', -- of an approval, as the next columns
    action       text    not null default '',
    hash         text    not null default '', -- of the approved action
    used         text    not null default '', -- key of the call that used the approval
    reason       text    not null default '',
    input_schema text    not null default '' -- JSON Schema of the answer; '' for a text
);
create index inbox_by_run on inbox (run);
create index inbox_open on inbox (expires_at) where state = 'open';
create unique index inbox_info on inbox (run, call) where kind = 'info';
create index inbox_by_hash on inbox (agent, hash) where hash <> '';
create index inbox_by_id on inbox (id) where state = 'open';

-- Standing approvals of an agent's actions.
create table standing (
    id         integer primary key autoincrement,
    agent      text    not null,
    hash       text    not null,
    tool       text    not null, -- '' for the definition of a job
    action     text    not null,
    item       integer not null, -- inbox item with which it was given
    created_at integer not null
);
create unique index standing_by_hash on standing (agent, hash);

-- Model usage by day and by month, for the daemon, each agent and each job. Reserved usage is of calls that have not ended.
-- Estimated usage is the part that no server has reported.
create table spending (
    period              text    not null, -- 2026-11-21 or 2026-11
    scope               text    not null,
    name                text    not null,
    tokens              integer not null default 0,
    cost_micro_usd      integer not null default 0,
    reserved_tokens     integer not null default 0,
    reserved_micro_usd  integer not null default 0,
    estimated_tokens    integer not null default 0,
    estimated_micro_usd integer not null default 0,
    estimated_why       text    not null default '', -- of the last estimate
    primary key (period, scope, name)
) without rowid;

-- Usage reserved for model calls that have not ended, or whose process was killed.
create table reservations (
    id             integer primary key autoincrement,
    run            integer not null,
    attempt        integer not null,
    step           integer not null,
    day            text    not null,
    agent          text    not null,
    job            text    not null,
    tokens_in      integer not null,
    tokens_out     integer not null,
    cost_micro_usd integer not null,
    at             integer not null
);
create index reservations_by_run on reservations (run, attempt);

-- Changes of files by runs, for undo. A row is written before its file changes.
create table file_ops (
    id          integer primary key autoincrement,
    run         integer not null,
    agent       text    not null,
    batch       text    not null, -- key of the call
    at          integer not null,
    type        text    not null, -- create, write, fileEdit
    root        text    not null, -- the granted folder
    path        text    not null, -- absolute
    made        text    not null default '', -- topmost folder that was created for the file
    mode        integer not null default 0, -- file mode before the change
    size        integer not null default 0, -- bytes before the change
    before      text    not null default '', -- content before the change, in base64
    before_hash text    not null default '', -- SHA-256; '' if there was no file
    after_hash  text    not null,
    lost        text    not null default '', -- why the change cannot be undone
    undone_at   integer not null default 0
);
create index file_ops_by_run on file_ops (run, id);
create index file_ops_by_agent on file_ops (agent, id);
create index file_ops_by_path on file_ops (agent, path, id);

-- Artifacts that runs have shared. Versions of a name within a chain count from 1.
create table artifacts (
    id            integer primary key autoincrement,
    run           integer not null,
    job           text    not null,
    agent         text    not null,
    chain         text    not null, -- job/NAME, or agent/NAME for a run without a job
    key           text    not null, -- of the call
    at            integer not null,
    name          text    not null, -- file name without a folder
    description   text    not null default '',
    version       integer not null,
    parent        integer not null default 0, -- the previous version
    size          integer not null,
    hash          text    not null, -- SHA-256
    content       text    not null, -- base64
    workspace     integer not null default 0, -- the following columns are for artifacts of a workspace
    type          text    not null default '',
    title         text    not null default '',
    status        text    not null default '',
    role          text    not null default '',
    approval      text    not null default '', -- pending, approved, rejected
    approval_ref  text    not null default '',
    superseded_by integer not null default 0,
    discarded     integer not null default 0
);
create unique index artifacts_by_call on artifacts (run, key);
create unique index artifacts_by_version on artifacts (chain, name, version);
create index artifacts_by_workspace on artifacts (workspace, id) where workspace <> 0;

-- Epochs of this ledger. Within an epoch no run id is given twice. A ledger that was restored to an earlier state begins
-- a new epoch above all known run ids. Agents' databases and recordings store the id of the epoch beside each run id.
create table epochs (
    n         integer primary key,
    id        text    not null unique,
    first_run integer not null,
    last_run  integer not null default 0, -- 0 for the current epoch
    began_at  integer not null
);
insert into epochs (n, id, first_run, began_at) values (1, lower(hex(randomblob(16))), 1, 0);

-- Labels of data that outlives the run that wrote it.
create table labels (
    kind   text    not null, -- file (with all below it), table, database, workspace
    place  text    not null, -- absolute path without links; AGENT/TABLE; AGENT; AGENT/SKILL/NAME
    label  text    not null, -- A untrusted, B private
    device integer not null default 0, -- identity of the file; 0 if it is not known
    inode  integer not null default 0,
    born   integer not null default 0, -- nanoseconds; 0 if the file system does not store it
    run    integer not null, -- the first run that wrote there with the label
    at     integer not null,
    primary key (kind, place, label)
);

-- Models that are not called until a time, because the quota of their provider is spent.
create table model_pauses (
    model  text    primary key, -- configured name
    since  integer not null, -- of the first refused request
    until  integer not null,
    tries  integer not null, -- pauses in a row
    reason text    not null
);

-- Workspaces: state of one skill for one agent, kept across runs.
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
    lock_version   integer not null, -- counts the writes from 1
    review         integer not null default 0, -- run that left it half changed, until the owner decides
    created_at     integer not null,
    updated_at     integer not null
);
create unique index workspaces_by_name on workspaces (agent, skill, name);
create index workspaces_review on workspaces (review) where review <> 0;

-- History of workspaces. Rows stay when their runs are removed.
create table workspace_events (
    id           integer primary key autoincrement,
    workspace    integer not null,
    run          integer not null default 0, -- 0 for the owner
    attempt      integer not null default 0,
    key          text    not null default '', -- of the call
    at           integer not null,
    kind         text    not null,
    lock_version integer not null, -- after the event
    data         text    not null default ''
);
create unique index workspace_events_by_call on workspace_events (run, key) where key <> '';
create index workspace_events_by_run on workspace_events (run, id) where run <> 0;
create index workspace_events_by_workspace on workspace_events (workspace, id);

-- Checkpoints that a new run can begin from.
create table checkpoints (
    id        integer primary key autoincrement,
    workspace integer not null default 0,
    run       integer not null,
    key       text    not null default '', -- of the call; '' for the state at the start of the run
    at        integer not null,
    phase     text    not null,
    role      text    not null,
    step      text    not null,
    run_state text    not null, -- JSON
    state     text    not null, -- of the workspace, JSON
    artifact  integer not null -- the last artifact of the ledger at that time
);
create index checkpoints_by_run on checkpoints (run, id);
create index checkpoints_by_workspace on checkpoints (workspace, id) where workspace <> 0;

-- Bodies of webhook requests, by the runs that they started.
create table deliveries (
    run  integer primary key,
    body text    not null
);

-- Incidents: a job that fails with one kind of error, from the first failure to the next success.
create table incidents (
    id        integer primary key autoincrement,
    job       text    not null default '', -- '' for runs of an agent without a job
    agent     text    not null default '',
    kind      text    not null,
    failures  integer not null default 0,
    error     text    not null default '', -- of the last failure
    first_run integer not null,
    last_run  integer not null,
    opened_at integer not null,
    last_at   integer not null,
    told      integer not null default 0, -- number of notices
    acked_at  integer not null default 0,
    note      text    not null default '', -- of the acknowledgement
    closed_at integer not null default 0,
    closed_by integer not null default 0 -- the run that succeeded
);
-- A job can change its agent while it fails.
create unique index incidents_open on incidents (job, kind, (case job when '' then agent else '' end)) where closed_at = 0;
create index incidents_now on incidents (id) where closed_at = 0;
create index incidents_now_by_job on incidents (job, id) where closed_at = 0;
create index incidents_by_job on incidents (job, last_at);

-- The time up to which each channel has got its digests.
create table digests (
    channel text    primary key,
    through integer not null
);

-- Obstacles that keep runs from starting, once each however many runs they block.
create table obstacles (
    source  text    primary key,
    kind    text    not null,
    reason  text    not null,
    since   integer not null,
    over_at integer not null default 0, -- 0 while it lasts
    told_at integer not null default 0 -- 0 if there was no notice
);

-- Processes that share this ledger, one row for each start. In a file there are none.
create table nodes (
    id         integer primary key autoincrement,
    name       text    not null,
    home       text    not null, -- the node whose agents' files it has; for a command, the node beside it
    host       text    not null,
    pid        integer not null,
    version    text    not null,
    config     text    not null, -- hash of the configuration
    address    text    not null default '', -- of its pages
    triggers   integer not null,
    lanes      integer not null, -- how many runs it does at once; 0: it is given none
    queue      text    not null, -- of River, with the runs that it alone may do
    started_at integer not null,
    gone_at    integer not null default 0, -- 0 while it may write
    why        text    not null default ''
);
create index nodes_alive on nodes (name) where gone_at = 0;

-- The node that has the database and the files of an agent. Another node gets them with a higher lease, and writes
-- under the earlier lease are refused.
create table agent_homes (
    agent text    primary key,
    node  text    not null,
    since integer not null,
    lease integer not null default 1,
    kept  integer not null default 0 -- whether agent_copies has all of it: 0 no, 1 yes, 2 there was nothing yet
);

-- Copies of agents' databases and files that nodes have shipped, in parts of bounded size.
create table agent_copies (
    agent text    not null,
    name  text    collate BINARY not null,
    part  integer not null,
    data  blob    not null, -- compressed
    primary key (agent, name, part)
);
--postgres alter table agent_copies alter column data set storage external;

-- The copy of another ledger into this one. The ledger cannot be used before it is complete.
create table copies (
    source   text    primary key, -- id of the other ledger
    begun_at integer not null,
    done_at  integer not null default 0 -- 0 until it is complete
);

-- Jobs that start when a run of another job has ended, from the current configuration.
create table followers (
    after    text    not null, -- the job whose runs are followed
    job      text    not null, -- the job that starts
    agent    text    not null,
    outcomes text    not null, -- of the ended run, a JSON list
    primary key (after, job)
) without rowid;
