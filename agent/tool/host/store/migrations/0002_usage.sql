-- What the storage holds, in bytes of keys and values, so that a write need not count it all.
create table usage (
  one   integer primary key check (one = 1),
  bytes integer not null
) strict;
insert into usage (one, bytes) select 1, coalesce(sum(octet_length(key) + octet_length(value)), 0) from entries;

create trigger entries_added after insert on entries begin
  update usage set bytes = bytes + octet_length(new.key) + octet_length(new.value);
end;
create trigger entries_changed after update on entries begin
  update usage set bytes = bytes + octet_length(new.value) - octet_length(old.value);
end;
create trigger entries_removed after delete on entries begin
  update usage set bytes = bytes - octet_length(old.key) - octet_length(old.value);
end;
