-- A call may be answered by steps of its own: they stand within it, by its key.
alter table steps add column within text not null default '';
