-- An agent's database and files are at one node at a time. The lease grows each time that another node gets them: what is written
-- under an older one is refused.
alter table agent_homes add column lease bigint not null default 1;
-- Whether all of it is in agent_copies as well, so that any node can get it: 0 no, 1 yes, 2 there was nothing yet.
alter table agent_homes add column kept bigint not null default 0;

-- What nodes ship of their agents' databases and files: objects, in parts of a bounded size, in the order of their bytes.
create table agent_copies (
	agent text not null,
	name  text collate "C" not null,
	part  bigint not null,
	data  bytea not null,
	primary key (agent, name, part)
);
-- It is compressed already.
alter table agent_copies alter column data set storage external;
