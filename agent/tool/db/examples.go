package db

// examples holds typical arguments of each tool.
var examples = map[string]string{
	"db_schema":       `{}`,
	"db_create_table": `{"name":"expenses","purpose":"What was paid, a row each","columns":[{"name":"day","type":"TEXT"},{"name":"amount","type":"NUMERIC"}],"if_not_exists":true}`,
	"db_alter_table":  `{"name":"expenses","add_columns":[{"name":"category","type":"TEXT"}]}`,
	"db_migrate":      `{"up_sql":"create index expenses_day on expenses(day)","down_sql":"drop index expenses_day","description":"index by day"}`,
	"db_insert":       `{"table":"expenses","row":{"day":"2026-11-21","amount":12.5}}`,
	"db_upsert":       `{"table":"expenses","key_columns":["day"],"row":{"day":"2026-11-21","amount":14}}`,
	"db_update":       `{"table":"expenses","set":{"category":"food"},"where":{"day":"2026-11-21"}}`,
	"db_delete":       `{"table":"expenses","where":{"day":"2026-11-21"}}`,
	"db_restore":      `{"table":"expenses","where":{"day":"2026-11-21"}}`,
	"db_execute":      `{"sql":"update expenses set category = :c where category is null","params":{"c":"other"}}`,
	"db_import":       `{"table":"expenses","path":"statements.csv"}`,
	"db_export":       `{"sql":"select day, amount from expenses order by day","path":"out/expenses.csv"}`,
	"db_define_view":  `{"name":"by_day","sql":"select day, sum(amount) total from expenses group by day","render_hint":"bar","refresh":"on_run"}`,
	"db_run_view":     `{"name":"by_day"}`,
	"db_list_views":   `{}`,
	"db_drop_view":    `{"name":"by_day"}`,
	"db_query":        `{"sql":"select sum(amount) total from expenses where day = :day","params":{"day":"2026-11-21"}}`,
}
