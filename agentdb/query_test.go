package agentdb_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/view"
)

// OSA-56
func TestQuery(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses",
		map[string]any{"category": "food", "amount": 12.5}, map[string]any{"category": "food", "amount": 7}, map[string]any{"category": "travel", "amount": 100})

	for sql, want := range map[string]string{
		"select category, sum(amount) from expenses group by 1 order by 2 desc;":            `[["travel",100],["food",19.5]]`,
		"with f as (select * from expenses where category = 'food') select count(*) from f": `[[2]]`,
		"values (1, 'a'), (2, 'b')":         `[[1,"a"],[2,"b"]]`,
		"select 1 -- a comment":             `[[1]]`,
		"/* ; */ select ';' /* ; */ ; -- ;": `[[";"]]`,
		"select/**/1":                       `[[1]]`,
		"select x'00ff'":                    `[["AP8="]]`,
		"select 9e999, -9e999, null":        `[["+Inf","-Inf",null]]`,
		"select 9223372036854775807":        `[[9223372036854775807]]`,
		"select name from sqlite_master where type = 'table' and name = 'expenses'": `[["expenses"]]`,
		"select value from json_each('[1,2]')":                                      `[[1],[2]]`,
		"select amount from expenses order by amount desc":                          `[[100],[12.5],[7]]`,
		"select id from expenses where 0":                                           `[]`,
	} {
		if got := ask(t, db, sql); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}

	if got := ask(t, db, "select category from expenses where amount > ? and category = ?2", 8, "food"); got != `[["food"]]` {
		t.Error(got)
	}

	rows, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select count(*) n from expenses where category = :c", Named: map[string]any{":c": "food"}})
	if err != nil || flat(t, rows) != `[[2]]` {
		t.Error(rows, err)
	}

	rows, err = db.Query(t.Context(), agentdb.QuerySpec{SQL: "select a.id, b.id, a.amount id_2 from expenses a join expenses b on a.id = b.id limit 1"})
	if err != nil || strings.Join(rows.Columns, " ") != "id id_2 id_2_2" || len(rows.Rows[0]) != 3 {
		t.Error(rows, err)
	}
}

func TestQueryErrorsAdvise(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	if _, err := db.Views.Save(t.Context(), changelog.By{Run: 1}, view.View{Name: "monthly", SQL: "select 1", RenderHint: "number", Refresh: "manual"}); err != nil {
		t.Fatal(err)
	}

	for sql, c := range map[string]struct{ field, part string }{
		`select "amunt" from expenses`:                               {"sql", `no such column: "amunt" - should this be a string literal in single-quotes?; did you mean amount?`},
		`select 1 from expenses where category = "x"`:                {"sql", `no such column: "x" - should this be a string literal in single-quotes?`},
		"select * from monthy":                                       {"sql", "no such table: monthy; did you mean monthly?"},
		"with x(a) as (select 1) delete from expenses where id in x": {"sql", "a query only reads and DELETE writes"},
		"select * from expense":                                      {"sql", "no such table: expense; did you mean expenses?"},
		"select e.amunt from expenses e":                             {"sql", "no such column: e.amunt; did you mean amount?"},
		"select from expenses":                                       {"sql", `near "from": syntax error`},
		"":                                                           {"sql", "no statement"},
		"-- nothing":                                                 {"sql", "no statement"},
		"delete from expenses":                                       {"sql", "a query only reads and DELETE writes"},
		"pragma table_info(expenses)":                                {"sql", "db_schema lists"},
		"select 1; select 2":                                         {"sql", "one statement at a time"},
		"select 'a":                                                  {"sql", "never closed"},
		"select 1 /* ":                                               {"sql", "never closed"},
		"vacuum":                                                     {"sql", "begins with SELECT"},
		"select ?":                                                   {"params", "more parameters than were given"},
		"select :a":                                                  {"params", "more parameters than were given"},
		"select zeroblob(100000000)":                                 {"sql", "too big"},
		"select hex(zeroblob(60000))":                                {"sql", "a single row of the answer has"},
		"select 1) union select (2":                                  {"sql", `near ")"`},
		"select 1\x00":                                               {"sql", "NUL"},
	} {
		_, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql})
		wantError(t, err, "invalid_args", c.field, c.part)
	}

	_, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select 1", Limit: -1})
	wantError(t, err, "invalid_args", "limit", "negative")
	_, err = db.Query(t.Context(), agentdb.QuerySpec{SQL: "select 1", Offset: -1})
	wantError(t, err, "invalid_args", "offset", "negative")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the run was cancelled")
	cancel(stop)
	if _, err := db.Query(ctx, agentdb.QuerySpec{SQL: "select 1"}); !errors.Is(err, stop) {
		t.Errorf("error %v, want the cause of the context", err)
	}
}

// OSA-56: 1,000 rows by default, at most 5,000 rows and 80,000 bytes. Pages join without a gap.
func TestQueryBounds(t *testing.T) {
	db := fresh(t)
	count := "with recursive n(i) as (select 1 union all select i + 1 from n where i < 6000) select i from n"
	for limit, want := range map[int]int{0: 1000, 10: 10, 5000: 5000, 9999: 5000} {
		rows, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: count, Limit: limit})
		if err != nil || len(rows.Rows) != want || !rows.Truncated || len(rows.Warnings) != 1 {
			t.Errorf("limit %d: %d rows, truncated %v, %q, %v", limit, len(rows.Rows), rows.Truncated, rows.Warnings, err)
		}
	}

	// With rows of {"x":"…"} and a comma, the limit is exactly 80,000 bytes.
	for _, c := range []struct {
		length, count int
		want          int // number of rows; 0 means rejected
	}{{79991, 1, 1}, {79992, 1, 0}, {39991, 2, 2}, {39992, 2, 1}} {
		sql := fmt.Sprintf("with recursive n(i) as (select 1 union all select i + 1 from n where i < %d) select printf('%%.*c', %d, 'x') x from n", c.count, c.length)
		rows, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql})
		if len(rows.Rows) != c.want || rows.Truncated != (c.want == 1 && c.count == 2) || (err != nil) != (c.want == 0) {
			t.Errorf("%d rows with %d characters: %d rows, truncated %v, %v", c.count, c.length, len(rows.Rows), rows.Truncated, err)
		}
	}

	var seen []any
	for offset := 0; ; {
		rows, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: strings.Replace(count, "select i from", "select i, hex(zeroblob(150)) from", 1) + " where i <= 1500", Limit: 5000, Offset: offset})
		if err != nil {
			t.Fatal(err)
		}

		for _, row := range rows.Rows {
			seen = append(seen, row["i"])
		}

		offset += len(rows.Rows)
		if !rows.Truncated {
			break
		}
		if want := fmt.Sprintf("ask again with offset %d,", offset); len(rows.Warnings) != 1 || !strings.Contains(rows.Warnings[0], want) {
			t.Errorf("%q, want %s", rows.Warnings, want)
		}
		if n := len(rows.Rows); n < 200 || n > 250 {
			t.Fatalf("a page of 80,000 bytes has %d rows of about 340", n)
		}
	}
	if len(seen) != 1500 || seen[0] != int64(1) || seen[1499] != int64(1500) {
		t.Errorf("the pages hold %d rows", len(seen))
	}
	if rows, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: count + " limit 10", Limit: 10}); err != nil || rows.Truncated {
		t.Errorf("all rows fit, and yet truncated: %v, %v", rows.Truncated, err)
	}
}

// C-4: deleted rows are hidden unless requested, also in new tables and columns.
func TestQueryHidesDeletedRows(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"amount": 1}, map[string]any{"amount": 2}, map[string]any{"amount": 3})
	raw(t, db, "update expenses set _deleted_at = '2026-01-01T00:00:00.000Z' where id = 2")
	both := func(sql, live, all string) {
		t.Helper()
		if got := ask(t, db, sql); got != live {
			t.Errorf("%s: %s, want %s", sql, got, live)
		}

		rows, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql, IncludeDeleted: true})
		if err != nil || flat(t, rows) != all {
			t.Errorf("%s, deleted included: %s, %v; want %s", sql, flat(t, rows), err, all)
		}
	}

	both("select id from expenses", "[[1],[3]]", "[[1],[2],[3]]")
	both("select count(*) from Expenses e where exists (select 1 from expenses f where f.id = e.id)", "[[2]]", "[[3]]")
	raw(t, db, "alter table expenses add column extra text default 'x'", "create table plain(a)", "insert into plain values (1)")
	both("select id, extra from expenses", `[[1,"x"],[3,"x"]]`, `[[1,"x"],[2,"x"],[3,"x"]]`)
	both("select a from plain", "[[1]]", "[[1]]")
	if _, err := db.CreateTable(t.Context(), changelog.By{}, schema.TableSpec{Name: "later", Purpose: "p", Columns: []schema.Column{{Name: "a", Type: "TEXT"}}}); err != nil {
		t.Fatal(err)
	}

	insert(t, db, "later", map[string]any{"a": "x"})
	raw(t, db, "update later set _deleted_at = '2026-01-01T00:00:00.000Z'")
	both("select a from later", "[]", `[["x"]]`)
	schema, err := db.Schema(t.Context())
	if err != nil || schema.Tables[0].RowCount != 2 {
		t.Errorf("%+v, %v", schema, err)
	}
}

// C-4: deleted rows are also hidden behind views. A broken view affects only its own readers.
func TestQueryThroughViews(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"category": "a", "amount": 1}, map[string]any{"category": "b", "amount": 2})

	for _, sql := range []string{
		"create view main.amounts(euro) as select amount from expenses",
		"create view sums as select sum(euro) as euro from amounts",
		"create view gone as select absent from expenses",
		"create view round as select * from round",
	} {
		if _, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: sql}); err != nil {
			t.Fatal(sql, err)
		}
	}

	if _, err := db.Delete(t.Context(), changelog.By{}, "expenses", map[string]any{"category": "a"}); err != nil {
		t.Fatal(err)
	}

	for sql, want := range map[string]string{
		"select euro from amounts": `[[2]]`,
		"select euro from sums":    `[[2]]`,
	} {
		if got := ask(t, db, sql); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}

	all, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select euro from sums", IncludeDeleted: true})
	if err != nil || len(all.Rows) != 1 || fmt.Sprint(all.Rows[0]["euro"]) != "3" {
		t.Errorf("%+v %v", all, err)
	}

	for sql, part := range map[string]string{"select * from gone": "no such column: absent", "select * from round": "circularly defined"} {
		if _, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql}); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// The views of live rows use the indexes of the tables.
func TestQueryUsesIndexes(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	conn, err := agentdb.GuardedConn(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	var a, b, c any
	var plan string
	if err := conn.QueryRowContext(t.Context(), "explain query plan select id from expenses where category = 'food'").Scan(&a, &b, &c, &plan); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(plan, "INDEX expenses_category (category=?)") {
		t.Error(plan)
	}
}

var escapes = []string{
	"attach database '/tmp/x' as x", "select * from x.t", "with a as (select 1) insert into expenses(amount) select * from a",
	"with a as (select 1) delete from expenses", "with a as (select 1) update expenses set amount = 0", "insert into expenses(amount) values (1) returning id",
	"select load_extension('x')", "select fts3_tokenizer('simple')", "create temp table t(a)", "create temp view v as select 1", "create temp trigger x after insert on expenses begin select 1; end",
	"create table t(a)", "drop table expenses", "alter table expenses rename to e", "pragma user_version = 3", "pragma writable_schema = on", "pragma query_only = 0",
	"select * from pragma_table_info('expenses')", "select * from pragma_user_version", "select count(*) from pragma_database_list",
	"update sqlite_master set sql = ''", "insert into sqlite_schema values (1,2,3,4,5)", "delete from sqlite_sequence", "select * from sqlite_sequence", "select * from sqlite_temp_master",
	"select * from _calls", "select result from _calls", "select count(*) from _calls", "select count(*) from main._calls", "select 1 from _changelog", "select * from main.\"_changelog\"",
	"select (select result from _calls)", "select 1 where exists (select 1 from _tables_meta)", "with a as (select * from _calls) select * from a", "with a as (select 1 from _calls) select count(*) from a",
	"select * from dbstat", "select count(*) from dbstat", "select * from sqlite_dbpage", "select count(*) from sqlite_dbpage", "select * from sqlite_stmt",
	"vacuum", "vacuum into '/tmp/rouse-escape.db'", "reindex", "analyze", "begin", "commit", "rollback", "savepoint a", "detach main",
	"explain insert into expenses(amount) values (1)", "select 1; delete from expenses", "select 1;\x00delete from expenses", "; delete from expenses",
	"select 1) ; delete from expenses; select (1", "select 1) limit 1; --", "values (1); attach ':memory:' as x",
}

// The escape corpus: no attempt returns a result, and the file is unchanged.
func TestQueryRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sqlite")
	db := open(t, path)
	expenses(t, db)
	if _, err := db.Insert(t.Context(), changelog.By{Run: 1, Key: "k"}, "expenses", []map[string]any{{"amount": 1}}); err != nil {
		t.Fatal(err)
	}

	before := checksum(t, path)
	for _, sql := range escapes {
		for _, deleted := range []bool{false, true} {
			rows, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql, IncludeDeleted: deleted})
			var bad *dberr.Error
			if err == nil || !errors.As(err, &bad) || bad.Kind != "invalid_args" {
				t.Errorf("%s: answered %v, error %v", sql, rows, err)
			}
		}
	}

	if checksum(t, path) != before {
		t.Error("the file was changed")
	}
	if _, err := os.Stat("/tmp/rouse-escape.db"); err == nil {
		t.Error("a query wrote a file")
	}

	// A common table expression is not a system table, counted or not.
	if got := ask(t, db, "with a as (select 1), b as (select 2) select count(*) from a, b"); got != "[[1]]" {
		t.Error(got)
	}
}

// The authorizer is sufficient without the scan before it.
func TestAuthorizerAlone(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	conn, err := agentdb.GuardedConn(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	for _, sql := range escapes {
		if strings.HasPrefix(sql, ";") || strings.Contains(sql, "\x00") || strings.Contains(sql, "1) ") || sql == "select * from x.t" {
			continue
		}
		if _, err := conn.ExecContext(t.Context(), sql); err == nil {
			t.Errorf("%s was allowed", sql)
		}
	}
}

func checksum(t testing.TB, path string) [32]byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	wal, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(append(content, wal...))
}

// Endless queries are stopped at every stage of their work.
func TestQueryTimeLimit(t *testing.T) {
	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: filepath.Join(t.TempDir(), "db.sqlite"), Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	const bomb = "with recursive r(n) as (select 1 union all select n + 1 from r) "
	for _, sql := range []string{
		bomb + "select count(*) from r",
		bomb + "select n from r where n = 1 or n < 0", // the first row is immediate, the second never comes
		bomb + "select n from r order by n desc limit 1",
		bomb + "select sum(length(hex(zeroblob(10000)))) from r",
	} {
		_, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql})
		wantError(t, err, "timeout", "sql", "took longer than 100ms")
	}

	if got := ask(t, db, "select 1"); got != "[[1]]" {
		t.Error("the connection does not work any more:", got)
	}
}

func FuzzQueryRefuses(f *testing.F) {
	path := filepath.Join(f.TempDir(), "db.sqlite")
	db := open(f, path)
	expenses(f, db)
	if _, err := db.Insert(context.Background(), changelog.By{Run: 1, Key: "sentinel-key"}, "expenses", []map[string]any{{"amount": 1}}); err != nil {
		f.Fatal(err)
	}

	for _, sql := range escapes {
		f.Add(sql)
	}

	f.Add("select category, sum(amount) from expenses group by 1")
	f.Fuzz(func(t *testing.T, sql string) {
		before := checksum(t, path)
		rows, err := db.Query(context.Background(), agentdb.QuerySpec{SQL: sql})
		var bad *dberr.Error
		if err != nil && !errors.As(err, &bad) {
			t.Fatalf("%q broke the host: %v", sql, err)
		}
		if err == nil && strings.Contains(flat(t, rows), "sentinel-key") {
			t.Fatalf("%q read the journal", sql)
		}
		if checksum(t, path) != before {
			t.Fatalf("%q changed the file", sql)
		}
	})
}

// A query that waits for a connection does not delay queries with deleted rows.
func TestQueryWaitsAlone(t *testing.T) {
	db := fresh(t)
	expenses(t, db)

	for range 2 { // all connections
		conn, err := agentdb.GuardedConn(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()

	begun, done := make(chan bool), make(chan error)
	go func() {
		close(begun)
		_, err := agentdb.GuardedConn(ctx, db)
		done <- err
	}()

	<-begun
	for range 1000 { // so that it is already waiting
		runtime.Gosched()
	}

	for range 20 {
		if _, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select 1", IncludeDeleted: true}); err != nil {
			t.Fatal(err)
		}
	}

	if ctx.Err() != nil {
		t.Error("it had to wait for the other one")
	}

	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Results, views and files show decimal amounts without binary rounding errors. The stored values
// are unchanged.
func TestDecimalsAreShownAsWritten(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	for _, amount := range []float64{42.80, 6.40, 73.15, 1.0 / 3} {
		insert(t, db, "expenses", map[string]any{"category": "food", "amount": amount})
	}
	raw(t, db, "update expenses set amount = 122.35000000000001 where id = 1")

	if got := ask(t, db, "select amount, amount + 0.1 + 0.2, amount = 122.35, 0.1 + 0.2 = 0.3 from expenses where id = 1"); got != `[[122.35,122.65,0,0]]` {
		t.Errorf("%s", got)
	}
	if got := ask(t, db, "select amount from expenses where id = 4"); got != `[[0.3333333333333333]]` {
		t.Errorf("a number whose digits go on: %s", got)
	}

	const sql = "select amount from expenses where id = 1"
	if _, err := db.Views.Save(t.Context(), changelog.By{Run: 1}, view.View{Name: "total", SQL: sql, RenderHint: "number", Refresh: "manual"}); err != nil {
		t.Fatal(err)
	}
	view, err := db.Views.Run(t.Context(), "total", nil)
	if err != nil || flat(t, view.Rows) != "[[122.35]]" {
		t.Errorf("%+v, %v", view, err)
	}

	for format, want := range map[string]string{"csv": "amount\n122.35\n", "json": "[\n{\"amount\":122.35}\n]\n"} {
		if _, got := export(t, db, format, sql); got != want {
			t.Errorf("%s: %q", format, got)
		}
	}
	if got := system(t, db, "select amount = 122.35000000000001 and amount <> 122.35 from expenses where id = 1"); got != "1" {
		t.Errorf("what is stored was changed: %v", got)
	}
}
