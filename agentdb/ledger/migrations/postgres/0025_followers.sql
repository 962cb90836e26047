-- Which jobs begin when a run of another job has ended, by the configuration that is in force.
create table followers (
    after    text not null, -- the job whose runs are followed
    job      text not null, -- the job that begins
    agent    text not null,
    outcomes text not null, -- of the ended run, a JSON list
    primary key (after, job)
);
