-- What a watch remembers: since when it is one, and for converge what it saw last.
create table watches (
    job     text    primary key,
    since   integer not null,
    print   text    not null default '',
    tree    text    not null default '',
    round   integer not null default 0,
    run     integer not null default 0
);
insert into watches (job, since) select job, min(at) from events where job <> '' group by job;

-- A file that a run of the job wrote itself.
alter table claims add column own integer not null default 0;
