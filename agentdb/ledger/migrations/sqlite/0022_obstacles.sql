-- Since when a queued run was kept from starting, until when (0: it still is), and by what: a JSON list of obstacles.
alter table runs add column blocked_since integer not null default 0;
alter table runs add column blocked_until integer not null default 0;
alter table runs add column blocked_by text not null default '';

-- What keeps runs from starting, each thing once however many runs it concerns, so that its owner is told once.
create table obstacles (
	source  text primary key,
	kind    text not null,
	reason  text not null,
	since   integer not null,
	over_at integer not null default 0, -- 0: it is still there
	told_at integer not null default 0  -- 0: nobody wanted to know
);
