-- What runs did to files, so that it can be undone. A row is written before its file changes:
-- what the file holds now tells whether it did.
create table file_ops (
    id          integer primary key autoincrement,
    run         integer not null,
    agent       text    not null,
    batch       text    not null, -- the key of the call
    at          integer not null,
    type        text    not null, -- create, write, fileEdit
    root        text    not null, -- the folder that was granted
    path        text    not null, -- absolute
    made        text    not null default '', -- the first of the folders that were made for it
    mode        integer not null default 0, -- of the file before
    size        integer not null default 0, -- bytes of the file before
    before      text    not null default '', -- base64; what is large is in a file
    before_hash text    not null default '', -- SHA-256; '' when there was no file
    after_hash  text    not null,
    lost        text    not null default '', -- why it cannot be undone
    undone_at   integer not null default 0
);
create index file_ops_by_run on file_ops (run, id);
create index file_ops_by_agent on file_ops (agent, id);
create index file_ops_by_path on file_ops (agent, path, id);
