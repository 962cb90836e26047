package db_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/agentdb/changelog"
	"rouse/internal/contract"
)

type object = map[string]any

// try calls a tool with arguments. The tool must know their names.
func (b *bench) try(name string, args object) tool.Envelope {
	b.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		b.t.Fatal(err)
	}
	b.calls++
	return b.call(fmt.Sprint("call ", b.calls), name, string(raw))
}

// do calls a tool, which must succeed with a result that has these fields.
func (b *bench) do(name string, args object, fields ...string) object {
	b.t.Helper()
	e := b.try(name, args)
	var result object
	if err := json.Unmarshal(e.Result, &result); !e.OK || err != nil {
		b.t.Fatalf("%s %v: %s %s %s", name, args, e.Kind, e.Field, e.Message)
	}
	for _, f := range fields {
		if _, ok := result[f]; !ok {
			b.t.Errorf("%s: no %s in %s", name, f, e.Result)
		}
	}
	return result
}

// changes returns the changelog of the agent's database.
func (b *bench) changes() []changelog.Change {
	b.t.Helper()
	db, release, err := b.pool.Get(b.t.Context(), "ann")
	if err != nil {
		b.t.Fatal(err)
	}
	defer release()
	all, err := db.Changes(b.t.Context(), changelog.Filter{})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// TestTableTools: OSA-52.
func TestTableTools(t *testing.T) {
	row, b := contract.Of(t, "OSA-52"), setup(t)
	q := row.Quote
	column := object{q("name"): "a", q("type"): "TEXT", q("nullable"): false, q("default"): "x", q("primary_key"): true}
	args := object{"name": "t", q("purpose"): "things", q("columns"): []object{column, {"name": "b", "type": "REAL"}},
		q("indexes"): []object{{"name": "by_b", "columns": []string{"b"}, q("unique"): true}}}
	created := b.do(q("db_create_table"), args, q("success"), q("migration_id"), q("applied_sql"))
	if sql := fmt.Sprint(created["applied_sql"]); !strings.Contains(sql, `"a" TEXT NOT NULL DEFAULT 'x'`) || !strings.Contains(sql, "CREATE UNIQUE INDEX") {
		t.Errorf("applied: %s", sql)
	}
	if e := b.try("db_create_table", args); string(e.Kind) != q("invalid_args") || e.Retryable {
		t.Errorf("a second time: %+v", e)
	}
	if got := fmt.Sprint(b.do(q("db_schema"), object{})["tables"]); !strings.Contains(got, "name:t") || !strings.Contains(got, "purpose:things") {
		t.Errorf("schema: %s", got)
	}
}

// TestMigrationTools: OSA-53.
func TestMigrationTools(t *testing.T) {
	row, b := contract.Of(t, "OSA-53"), setup(t)
	q := row.Quote
	b.call("1", "db_create_table", table)
	b.do("db_insert", object{"table": "expenses", "row": object{"shop": "a"}})
	b.do(q("db_alter_table"), object{q("name"): "expenses", q("add_columns"): []object{{"name": "n", "type": "INTEGER", "nullable": false}, {"name": "s", "type": "TEXT", "nullable": false}}})
	zero := row.Number("0")
	b.want("", "db_query", `{"sql":"select n, s from expenses"}`, fmt.Sprintf(`{"columns":["n","s"],"rows":[{"n":%d,"s":""}],"truncated":false}`, zero))

	migrate := func(description string) {
		b.do(q("db_migrate"), object{q("up_sql"): fmt.Sprintf("create table rates%d(a)", len(description)), q("down_sql"): "drop table rates", q("description"): description})
	}
	home := filepath.Join(b.home, "ann")
	if err := os.Remove(filepath.Join(home, "migrations", "0002-alter-expenses.sql")); err != nil {
		t.Fatal(err)
	}
	migrate(strings.Repeat("long ", 30))
	names, err := filepath.Glob(filepath.Join(home, "migrations", "0003-*.sql"))
	if err != nil || len(names) != 2 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		name, _, _ = strings.Cut(strings.TrimPrefix(filepath.Base(name), "0003-"), ".")
		if n := utf8.RuneCountInString(name); n > row.Number("48") || n < row.Number("48")-5 {
			t.Errorf("%s has %d characters", name, n)
		}
	}

	b = setup(t)
	b.call("1", "db_create_table", table)
	migrate("Add rates")
	for name, want := range map[string]string{
		"migrations/" + q("0002-add-rates.sql"): "create table rates9", "migrations/" + q("0002-add-rates.down.sql"): "drop table rates", q("schema.sql"): "rates9",
	} {
		if text, err := os.ReadFile(filepath.Join(b.home, "ann", name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s holds %s, %v", name, text, err)
		}
	}
}

// TestWritingTools: OSA-54.
func TestWritingTools(t *testing.T) {
	row, b := contract.Of(t, "OSA-54"), setup(t)
	q := row.Quote
	b.call("1", "db_create_table", table)
	one := b.do(q("db_insert"), object{q("table"): "expenses", q("row"): object{"shop": "a"}}, q("id"))
	if len(one) != 1 {
		t.Errorf("one row: %v", one)
	}

	chunk := row.Number("1,000")
	many := make([]object, 2*chunk+1)
	for i := range many {
		many[i] = object{"shop": fmt.Sprint("shop ", i)}
	}
	before := len(b.changes())
	if done := b.do("db_insert", object{"table": "expenses", q("rows"): many}, q("ids"), q("count")); done["count"] != float64(len(many)) {
		t.Errorf("%v rows", done["count"])
	}
	if n := len(b.changes()) - before; n != 3 {
		t.Errorf("%d rows made %d entries of the changelog", len(many), n)
	}

	upsert := func(row object) tool.Envelope {
		return b.try(q("db_upsert"), object{"table": "expenses", q("key_columns"): []string{"shop"}, "row": row})
	}
	upsert(object{"shop": "a", "amount": 7})
	upsert(object{"shop": "a"})
	b.want("", "db_query", `{"sql":"select amount from expenses where shop = 'a'"}`, `{"columns":["amount"],"rows":[{"amount":7}],"truncated":false}`)
	if e := upsert(object{"amount": 1}); e.OK || e.Kind != tool.KindInvalidArgs {
		t.Errorf("without its key: %+v", e)
	}
}

// TestChangingTools: OSA-55.
func TestChangingTools(t *testing.T) {
	row, b := contract.Of(t, "OSA-55"), setup(t)
	q := row.Quote
	b.call("1", "db_create_table", table)
	b.call("2", "db_insert", `{"table":"expenses","rows":[{"shop":"a","amount":1},{"shop":"a","amount":2},{"shop":"b","amount":1}]}`)
	affected := func(want int, name string, args object) {
		t.Helper()
		if got := b.do(name, args, q("rows_affected")); got["rows_affected"] != float64(want) {
			t.Errorf("%s %v: %v, want %d", name, args, got, want)
		}
	}

	both := object{"shop": "a", "amount": 1}
	affected(1, q("db_update"), object{q("table"): "expenses", q("set"): object{"amount": 3}, q("where"): both})
	affected(2, q("db_delete"), object{"table": "expenses", "where": object{"shop": "a"}})
	affected(0, "db_update", object{"table": "expenses", "set": object{"amount": 4}, "where": object{"shop": "a"}})
	affected(2, "db_update", object{"table": "expenses", "set": object{"amount": 4}, "where": object{"shop": "a"}, q("include_deleted"): true})
	b.want("", "db_query", `{"sql":"select shop from expenses"}`, `{"columns":["shop"],"rows":[{"shop":"b"}],"truncated":false}`)
	affected(2, q("db_restore"), object{"table": "expenses", "where": object{"shop": "a"}})

	b.do("db_execute", object{"sql": "create table made_by_sql(a)"})
	for name, args := range map[string]object{"no rows named": {"table": "expenses", "where": object{}}, "no " + q("_deleted_at"): {"table": "made_by_sql", "where": object{"a": 1}}} {
		if e := b.try("db_delete", args); string(e.Kind) != q("invalid_args") || !strings.Contains(e.Message, "db_execute") {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestQueryTool: OSA-56, C-4.
func TestQueryTool(t *testing.T) {
	row, deleted, b := contract.Of(t, "OSA-56"), contract.Of(t, "C-4"), setup(t)
	q := row.Quote
	const numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 6000) select i from n"
	rows := func(args object) int {
		got := b.do(q("db_query"), args, q("columns"), q("rows"), q("truncated"))
		if got["truncated"] != true {
			t.Errorf("%v is not cut", args)
		}
		return len(got["rows"].([]any))
	}
	if n := rows(object{q("sql"): numbers}); n != row.Number("1,000") {
		t.Errorf("%d rows by default", n)
	}
	if n := rows(object{"sql": numbers, q("limit"): 5999}); n != row.Number("5,000") {
		t.Errorf("%d rows at most", n)
	}
	got := b.do("db_query", object{"sql": numbers + " where i > ?", q("params"): []int{10}, "limit": 1, q("offset"): 5})
	if fmt.Sprint(got["rows"]) != "[map[i:16]]" {
		t.Errorf("page: %v", got)
	}

	most := row.Number("80,000")
	e := b.try("db_query", object{"sql": strings.Replace(numbers, "select i from", "select printf('%.*c', 1000, 'x') i from", 1), "limit": 5000})
	if n := len(e.Result); n > most+200 || n < most-2000 || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "offset") {
		t.Errorf("%d bytes, %q", n, e.Warnings)
	}
	for _, sql := range []string{"delete from expenses", "create table x(a)"} {
		if e := b.try("db_query", object{"sql": sql}); e.Kind != tool.KindInvalidArgs {
			t.Errorf("%s: %+v", sql, e)
		}
	}

	b.call("1", "db_create_table", table)
	b.call("2", "db_insert", `{"table":"expenses","rows":[{"shop":"a"},{"shop":"b"}]}`)
	b.do("db_delete", object{"table": "expenses", "where": object{"shop": "a"}})
	for _, hidden := range []bool{true, false} {
		got := b.do("db_query", object{"sql": "select shop from expenses", deleted.Quote("include_deleted"): !hidden})
		if n := len(got["rows"].([]any)); n != map[bool]int{true: 1, false: 2}[hidden] {
			t.Errorf("hidden %t: %d rows", hidden, n)
		}
	}
	if got := b.do(deleted.Quote("db_execute"), object{"sql": "update expenses set amount = 1 where 1"}); got["rows_affected"] != 2.0 {
		t.Errorf("%v", got)
	}
}

// TestExecuteTool: OSA-57.
func TestExecuteTool(t *testing.T) {
	row, b := contract.Of(t, "OSA-57"), setup(t)
	q := row.Quote
	b.call("1", "db_create_table", table)
	got := b.do(q("db_execute"), object{q("sql"): "insert into expenses(shop) values ('a'), ('b'); update expenses set amount = 1; select * from expenses"},
		q("rows_affected"), q("warning"), q("select_rows_drained"))
	if got["rows_affected"] != 4.0 || got["select_rows_drained"] != 2.0 || !strings.Contains(fmt.Sprint(got["warning"]), "UPDATE without WHERE") {
		t.Errorf("%v", got)
	}
	b.write("change.sql", "delete from expenses where shop = :s")
	if got := b.do("db_execute", object{q("path"): "change.sql", q("params"): object{"s": "b"}}); got["rows_affected"] != 1.0 {
		t.Errorf("%v", got)
	}
	if e := b.try("db_execute", object{"sql": "select 1", "path": "change.sql"}); e.Kind != tool.KindInvalidArgs {
		t.Errorf("both: %+v", e)
	}
	raw := false
	for _, c := range b.changes() {
		raw = raw || c.Op == q("raw") && strings.Contains(c.SQL, "delete from expenses")
	}
	if !raw {
		t.Errorf("changelog: %+v", b.changes())
	}

	before := len(b.changes())
	statement := map[string]string{"DROP TABLE": "%s expenses", "TRUNCATE": "%s expenses", "DELETE": "%s from expenses", "ATTACH": "%s 'x.db' as x", "DETACH": "%s main",
		"load_extension": "select %s('x')", "PRAGMA": "%s user_version = 3"}
	refused := append(row.Between("It refuses ", " and writes"), "update _changelog set op = '' where 1")
	for _, word := range refused {
		sql := word
		if form, ok := statement[word]; ok {
			sql = fmt.Sprintf(form, word)
		}
		if e := b.try("db_execute", object{"sql": "insert into expenses(shop) values ('c'); " + sql}); e.OK || e.Kind != tool.KindInvalidArgs && e.Kind != tool.KindRejected {
			t.Errorf("%s: %+v", sql, e)
		}
	}
	if len(refused) != len(statement)+1 || len(b.changes()) != before {
		t.Errorf("%q, %d changes", refused, len(b.changes())-before)
	}
}

// TestImportTool: OSA-58.
func TestImportTool(t *testing.T) {
	row, b := contract.Of(t, "OSA-58"), setup(t)
	q := row.Quote
	b.write("a.txt", "1,2,3\n4,5,6\n")
	got := b.do(q("db_import"), object{q("table"): "t", q("path"): "a.txt", q("has_header"): false, q("columns"): []string{"a", "b", "c"}, q("max_rows"): 1, q("create_table"): q("true") == "true"},
		"table", q("rows_imported"), q("rows_skipped"), q("created_table"), "columns", q("truncated"))
	if got["created_table"] != true || got["truncated"] != true || got["rows_imported"] != 1.0 {
		t.Errorf("%v", got)
	}
	if schema := fmt.Sprint(b.do("db_schema", object{})); !strings.Contains(schema, "purpose:"+q("Imported from")+" a.txt") {
		t.Errorf("schema: %s", schema)
	}

	b.write("more.csv", "a,b,z\n1,0,y\n7,8,9\nlone\n")
	got = b.do("db_import", object{"table": "t", "path": "more.csv", q("mode"): q("upsert"), q("key_columns"): []string{"a"}}, q("dropped_columns"), q("sample_errors"))
	if got["rows_imported"] != 2.0 || fmt.Sprint(got["dropped_columns"]) != "[z]" {
		t.Errorf("%v", got)
	}
	if e := b.try("db_import", object{"table": "none", "path": "more.csv", "mode": q("insert"), "create_table": false}); e.Kind != tool.KindNotFound {
		t.Errorf("without its table: %+v", e)
	}

	content := map[string]string{"csv": "a,b\n1,x\n", "tsv": "a\tb\n1\tx\n", "json": `[{"a":1,"b":"x"}]`, "jsonl": `{"a":1,"b":"x"}`, "ndjson": `{"a":1,"b":"x"}`}
	formats := row.Between("Formats are ", ", found")
	if len(formats) != len(content) {
		t.Errorf("formats: %q", formats)
	}
	for i, format := range formats {
		for j, args := range []object{{"path": "data." + format}, {"path": "data.bin", "format": format}, {"path": "data.bin"}} {
			b.write(args["path"].(string), content[format])
			args["table"] = fmt.Sprintf("t_%d_%d", i, j)
			if got := b.do("db_import", args); fmt.Sprint(got["columns"]) != "[a b]" || got["rows_imported"] != 1.0 {
				t.Errorf("%v: %v", args, got)
			}
		}
	}
	b.write("data.csv", content["json"])
	b.do("db_import", object{"table": "argument", "path": "data.csv", q("format"): "json"})

	f, err := os.Create(filepath.Join(b.work, "large.csv"))
	if err != nil {
		t.Fatal(err)
	}
	var mib int64
	if _, err := fmt.Sscanf(q("64 MiB"), "%d MiB", &mib); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(mib<<20 + 1); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if e := b.try("db_import", object{"table": "large", "path": "large.csv"}); e.OK || !strings.Contains(e.Message, "larger than 64 MiB") {
		t.Errorf("large: %+v", e)
	}
}

// TestExportTool: OSA-59.
func TestExportTool(t *testing.T) {
	row, b := contract.Of(t, "OSA-59"), setup(t)
	q := row.Quote
	args := object{q("sql"): "select ? a", q("params"): []int{7}, q("path"): "out.txt", q("format"): "csv"}
	got := b.do(q("db_export"), args, "path", "format", q("rows_exported"), q("bytes"), q("truncated"), q("columns"))
	if fmt.Sprint(got) != "map[bytes:4 columns:[a] format:csv path:out.txt rows_exported:1 truncated:false]" {
		t.Errorf("%v", got)
	}
	if e := b.try("db_export", args); e.Kind != tool.KindRejected {
		t.Errorf("a file that exists: %+v", e)
	}
	args["sql"], args[q("overwrite")] = "select ? b", true
	b.do("db_export", args)
	b.holds("out.txt", "b\n7\n")
}

// TestViewTools: OSA-60.
func TestViewTools(t *testing.T) {
	row, b := contract.Of(t, "OSA-60"), setup(t)
	q := row.Quote
	define := func(hint, refresh, sql string) tool.Envelope {
		return b.try(q("db_define_view"), object{q("name"): "v", q("sql"): sql, q("render_hint"): hint, q("refresh"): refresh, q("description"): "d"})
	}
	if define("table", "manual", "delete from expenses").OK || define("cake", "manual", "select 1").OK || define("table", "sometimes", "select 1").OK {
		t.Error("a view that is none was defined")
	}

	first := ""
	for _, hint := range row.Between("Hints are ", ". A view is") {
		for _, refresh := range []string{q("manual"), q("on_run"), q("5m")} {
			if e := define(hint, refresh, "select 1 a"); !e.OK {
				t.Errorf("%s, %s: %+v", hint, refresh, e)
			}
			views := b.do(q("db_list_views"), object{})["views"].([]any)
			v := views[0].(object)
			if first == "" {
				first = fmt.Sprint(v[q("created_at")])
				db, release, err := b.pool.Get(t.Context(), "ann")
				if err != nil {
					t.Fatal(err)
				}
				if err := db.Views.Pin(t.Context(), changelog.By{}, "v", true); err != nil {
					t.Fatal(err)
				}
				release()
			} else if v["created_at"] != first || v["pinned"] != true || v["render_hint"] != hint || v["refresh"] != refresh {
				t.Errorf("defined again: %v", v)
			}
		}
	}
	if got := b.do(q("db_run_view"), object{"name": "v"}); fmt.Sprint(got["rows"]) != "[map[a:1]]" {
		t.Errorf("%v", got)
	}
	if got := b.do(q("db_drop_view"), object{"name": "v"}, "name"); got[q("dropped")] != true {
		t.Errorf("%v", got)
	}
}
