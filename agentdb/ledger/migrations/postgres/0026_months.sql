-- What models took, by calendar month (2026-11), as spending has it by day. A month begins with what its days hold by then.
create table month_spending (
    month               text    not null,
    scope               text    not null,
    name                text    not null,
    tokens              bigint not null default 0,
    cost_micro_usd      bigint not null default 0,
    reserved_tokens     bigint not null default 0,
    reserved_micro_usd  bigint not null default 0,
    estimated_tokens    bigint not null default 0,
    estimated_micro_usd bigint not null default 0,
    estimated_why       text    not null default '',
    primary key (month, scope, name)
);
