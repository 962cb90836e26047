-- Which ledger this is. What is kept outside of it under the id of a run (in the agents' databases,
-- in recordings) carries the id of the epoch too. A ledger that was put back to an older state begins
-- a new epoch, whose run ids none before it has given.
create table epochs (
    n         integer primary key,
    id        text not null unique,
    first_run integer not null,
    last_run  integer not null default 0, -- 0: it goes on
    began_at  integer not null
);
insert into epochs (n, id, first_run, began_at) values (1, lower(hex(randomblob(16))), 1, 0);
