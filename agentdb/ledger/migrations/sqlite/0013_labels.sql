-- The labels of data that outlives the run which wrote it: A untrusted, B private.
create table labels (
    kind   text    not null, -- file (with all below it), table, database; agent: both of one, of before there were labels
    place  text    not null, -- an absolute path without links; AGENT/TABLE; AGENT
    label  text    not null, -- A or B
    device integer not null default 0, -- identity of the file, 0: not known
    inode  integer not null default 0,
    born   integer not null default 0, -- nanoseconds; 0: the file system does not tell
    run    integer not null, -- the first that wrote there while it held the label
    at     integer not null,
    primary key (kind, place, label)
);
insert into labels (kind, place, label, run, at) select 'agent', agent, 'A', run, at from untrusted;
drop table untrusted;
