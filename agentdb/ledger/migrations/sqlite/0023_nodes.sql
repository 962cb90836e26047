-- The processes that work on this ledger together, a row for each start of one. In a file there is never one: its home has
-- a single process. One that is not gone may write.
create table nodes (
	id         integer primary key autoincrement,
	name       text not null,
	home       text not null,             -- the node whose agents' files it has: its own name, but for a command beside a node
	host       text not null,
	pid        integer not null,
	version    text not null,
	config     text not null,              -- a hash of its configuration
	address    text not null default '',   -- of its pages
	triggers   integer not null,
	work       integer not null,
	started_at integer not null,
	seen_at    integer not null,
	gone_at    integer not null default 0, -- 0: it holds its lease
	why        text not null default ''
);
create index nodes_alive on nodes (name) where gone_at = 0;

-- The node that made an attempt; 0: the only process there was.
alter table attempts add column node integer not null default 0;

-- Where the files and the database of an agent are: the name of a node.
create table agent_homes (
	agent text primary key,
	node  text not null,
	since integer not null
);

-- That this ledger is being copied from another one, and is not to be used before it is whole.
create table copies (
	source   text primary key, -- the id of the other
	begun_at integer not null,
	done_at  integer not null default 0 -- 0: it is not whole
);
