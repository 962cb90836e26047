-- What its channel answered when it took a notice.
alter table outbox add column answer text not null default '';
