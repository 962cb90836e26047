-- What the requests of webhooks brought, by the runs that they started.
create table deliveries (
    run  bigint primary key,
    body text not null -- or where it is kept
);
