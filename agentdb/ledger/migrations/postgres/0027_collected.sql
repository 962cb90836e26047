-- Until when the files of a watch that collects have been handed over.
alter table watches add column collected bigint not null default 0;
