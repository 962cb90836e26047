-- What models took, by calendar month (2026-11), as spending has it by day. A month begins with what its days hold by then.
create table month_spending (
    month               text    not null,
    scope               text    not null,
    name                text    not null,
    tokens              integer not null default 0,
    cost_micro_usd      integer not null default 0,
    reserved_tokens     integer not null default 0,
    reserved_micro_usd  integer not null default 0,
    estimated_tokens    integer not null default 0,
    estimated_micro_usd integer not null default 0,
    estimated_why       text    not null default '',
    primary key (month, scope, name)
) without rowid;
