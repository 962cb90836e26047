-- That the owner knows of a quota that is nearly used up, since when (OSA-62). It goes when the
-- use falls below again.
create table _quota_told (
  at text not null
);
