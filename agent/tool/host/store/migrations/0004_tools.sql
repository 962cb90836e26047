-- The tools that the module of the skill has registered for the agent (OSL-32).
create table tools (
  name    text primary key, -- without that of the skill
  version text not null,    -- of the manifest, when it was registered
  offer   text not null     -- JSON
) strict, without rowid;
