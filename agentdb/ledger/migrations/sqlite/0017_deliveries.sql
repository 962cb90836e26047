-- What the requests of webhooks brought, by the runs that they started.
create table deliveries (
    run  integer primary key,
    body text not null -- or where it is kept
);
