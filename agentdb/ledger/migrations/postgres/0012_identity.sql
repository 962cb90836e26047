-- Which ledger this is. What is kept outside of it under the id of a run (in the agents' databases,
-- in recordings) carries the id of the epoch too. A ledger that was put back to an older state begins
-- a new epoch, whose run ids none before it has given.
create table epochs (
    n         bigint primary key,
    id        text not null unique,
    first_run bigint not null,
    last_run  bigint not null default 0, -- 0: it goes on
    began_at  bigint not null
);
insert into epochs (n, id, first_run, began_at) values (1, left(encode(sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea), 'hex'), 32), 1, 0);
