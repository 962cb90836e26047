-- Which model answered a step, by its configured name: another one may take over in a run.
alter table steps add column model text not null default '';
