-- Models that nobody asks until a time, because their provider's quota is spent. A row goes when the model
-- answers again.
create table model_pauses (
    model  text    primary key, -- by its configured name
    since  integer not null,   -- when the first request was refused
    until  integer not null,
    tries  integer not null,   -- how often it has been paused in a row
    reason text    not null
);

-- How often a run has waited for its model, which could not be asked.
alter table runs add column postponements integer not null default 0;
