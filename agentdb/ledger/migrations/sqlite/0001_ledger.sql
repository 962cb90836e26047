create table jobs (
    name          text    primary key,
    agent         text    not null,
    schedule_hash text    not null,
    anchor        integer not null,
    watermark     integer not null,
    removed       integer not null default 0
);

create table runs (
    id             integer primary key autoincrement,
    key            text    not null unique,
    job            text    not null,
    agent          text    not null,
    triggered_by   text    not null,
    detail         text    not null,
    state          text    not null,
    waiting_for    text    not null default '',
    not_before     integer not null default 0,
    outcome        text    not null default '',
    exit           text    not null default '',
    verified       integer not null default 0,
    attempt        integer not null default 0,
    interruptions  integer not null default 0,
    scheduled_at   integer not null default 0,
    queued_at      integer not null,
    started_at     integer not null default 0,
    finished_at    integer not null default 0,
    summary        text    not null default '',
    error          text    not null default '',
    steps          integer not null default 0,
    calls          integer not null default 0,
    tokens_in      integer not null default 0,
    tokens_out     integer not null default 0,
    tokens_cached  integer not null default 0,
    cost_micro_usd integer not null default 0,
    cancel_reason  text    not null default ''
);
create index runs_by_job on runs (job, id);
create index runs_due on runs (not_before) where not_before <> 0;
create index runs_unfinished on runs (state, id) where state <> 'finished';

create table occurrences (
    job         text    not null,
    nominal     integer not null,
    actual      integer not null,
    decision    text    not null,
    reason      text    not null,
    run         integer not null default 0,
    recorded_at integer not null,
    primary key (job, nominal)
) without rowid;

create table attempts (
    run         integer not null,
    number      integer not null,
    state       text    not null,
    started_at  integer not null,
    finished_at integer not null default 0,
    error       text    not null default '',
    primary key (run, number)
) without rowid;

create table steps (
    run           integer not null,
    attempt       integer not null,
    number        integer not null,
    message       text    not null default '',
    body          text    not null default '',
    notices       text    not null default '[]',
    tokens_in     integer not null default 0,
    tokens_out    integer not null default 0,
    tokens_cached integer not null default 0,
    started_at    integer not null,
    finished_at   integer not null default 0,
    primary key (run, attempt, number)
);

create table calls (
    run         integer not null,
    attempt     integer not null,
    step        integer not null,
    position    integer not null,
    id          text    not null,
    key         text    not null,
    tool        text    not null,
    args        text    not null,
    effect      text    not null,
    state       text    not null,
    envelope    text    not null default '',
    started_at  integer not null,
    finished_at integer not null default 0,
    primary key (run, attempt, step, position)
);

create table events (
    id   integer primary key autoincrement,
    run  integer not null default 0,
    seq  integer not null default 0,
    job  text    not null default '',
    at   integer not null,
    kind text    not null,
    data text    not null default ''
);
create unique index events_by_run on events (run, seq) where run <> 0;
create index events_by_job on events (job, id);

create table claims (
    id         integer primary key autoincrement,
    job        text    not null,
    path       text    not null,
    hash       text    not null,
    size       integer not null,
    mod_time   integer not null,
    run        integer not null,
    generation integer not null,
    outcome    text    not null default '',
    after      text    not null default '',
    dest       text    not null default '',
    error      text    not null default '',
    unique (job, path, hash)
);
create index claims_by_run on claims (run);
create index claims_pending on claims (id) where after = 'pending';

create table outbox (
    id         integer primary key autoincrement,
    key        text    unique,
    run        integer not null default 0,
    job        text    not null default '',
    agent      text    not null default '',
    channel    text    not null,
    title      text    not null,
    body       text    not null default '',
    outcome    text    not null default '',
    state      text    not null,
    tries      integer not null default 0,
    next_at    integer not null,
    created_at integer not null,
    error      text    not null default ''
);
create index outbox_pending on outbox (next_at) where state = 'pending';

create table blobs (
    hash text    not null,
    run  integer not null,
    primary key (hash, run)
) without rowid;
create index blobs_by_run on blobs (run);
