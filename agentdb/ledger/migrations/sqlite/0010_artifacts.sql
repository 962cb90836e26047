-- What runs handed to their owners. Versions of one name in one chain count up from 1.
create table artifacts (
    id          integer primary key autoincrement,
    run         integer not null,
    job         text    not null,
    agent       text    not null,
    chain       text    not null, -- job/NAME, or agent/NAME of a run without a job
    key         text    not null, -- of the call: it shares once
    at          integer not null,
    name        text    not null, -- of the file, without a folder
    description text    not null default '',
    version     integer not null,
    parent      integer not null default 0, -- the version before, 0 for none
    size        integer not null,
    hash        text    not null, -- SHA-256 of the bytes
    content     text    not null  -- base64; what is large is in a file
);
create unique index artifacts_by_call on artifacts (run, key);
create unique index artifacts_by_version on artifacts (chain, name, version);
