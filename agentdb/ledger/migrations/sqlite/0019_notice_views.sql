-- The view of its agent that a notice is about.
alter table outbox add column view_ref text not null default '';
