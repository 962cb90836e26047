-- Whose database this is, so that a copy can be told from another agent's.
create table _owner (
  agent text not null,
  since text not null
);
