-- The part of what models took that no server has reported: it was counted by what was sent and received.
alter table spending add column estimated_tokens integer not null default 0;
alter table spending add column estimated_micro_usd integer not null default 0;
alter table spending add column estimated_why text not null default ''; -- the last of it
alter table steps add column estimated_tokens integer not null default 0;
alter table steps add column estimated_micro_usd integer not null default 0;
alter table runs add column estimated_tokens integer not null default 0;
alter table runs add column estimated_micro_usd integer not null default 0;
