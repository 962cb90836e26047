-- The call that an item of the inbox is about, by its key; '' when it is about none.
alter table inbox add column call text not null default '';

-- An owner is told once of each call.
create unique index inbox_info on inbox (run, call) where kind = 'info';
