package agentdb_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/transfer"
	"rouse/internal/contract"
	"rouse/internal/storage/sqlite"
)

func open(t testing.TB, path string) *agentdb.DB {
	t.Helper()
	db, err := agentdb.Open(context.Background(), agentdb.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func fresh(t testing.TB) *agentdb.DB { return open(t, filepath.Join(t.TempDir(), "db.sqlite")) }

func expenses(t testing.TB, db *agentdb.DB) {
	t.Helper()
	_, err := db.CreateTable(context.Background(), changelog.By{Run: 1}, schema.TableSpec{
		Name: "expenses", Purpose: "What was spent",
		Columns: []schema.Column{{Name: "category", Type: "TEXT"}, {Name: "amount", Type: "REAL"}, {Name: "note", Type: "TEXT", Default: json.RawMessage(`"none"`)}},
		Indexes: []schema.Index{{Name: "expenses_category", Columns: []string{"category"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func insert(t testing.TB, db *agentdb.DB, table string, rows ...map[string]any) agentdb.Inserted {
	t.Helper()
	in, err := db.Insert(context.Background(), changelog.By{Run: 1}, table, rows)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// ask returns the result as a JSON list of rows, with the values in column order.
func ask(t testing.TB, db *agentdb.DB, sql string, params ...any) string {
	t.Helper()
	rows, err := db.Query(context.Background(), agentdb.QuerySpec{SQL: sql, Params: params, Limit: 5000})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return flat(t, rows)
}

func flat(t testing.TB, rows agentdb.Rows) string {
	t.Helper()
	out := [][]any{}
	for _, row := range rows.Rows {
		var values []any
		for _, c := range rows.Columns {
			values = append(values, row[c])
		}
		out = append(out, values)
	}

	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// system reads the host's own tables, which queries cannot read.
func system(t testing.TB, db *agentdb.DB, query string) string {
	t.Helper()
	out, err := agentdb.System(context.Background(), db, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

// raw changes the file as a later db_execute would.
func raw(t testing.TB, db *agentdb.DB, statements ...string) {
	t.Helper()
	if err := agentdb.Exec(context.Background(), db, statements...); err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err error, kind, field, part string) {
	t.Helper()
	var bad *dberr.Error
	if !errors.As(err, &bad) {
		t.Fatalf("error %v, want an *Error of kind %s", err, kind)
	}
	if bad.Kind != kind || bad.Field != field || !strings.Contains(bad.Message, part) {
		t.Fatalf("error %+v, want kind %s, field %s, a message with %q", bad, kind, field, part)
	}
}

// OSA-52
func TestCreateTable(t *testing.T) {
	db := fresh(t)
	spec := schema.TableSpec{Name: "t", Purpose: "things", Columns: []schema.Column{{Name: "a", Type: "STRING"}, {Name: "n", Type: "int", Default: json.RawMessage(`7`)}},
		Indexes: []schema.Index{{Name: "t_a", Columns: []string{"a"}, Unique: true}}}
	created, err := db.CreateTable(t.Context(), changelog.By{Run: 4}, spec)
	if err != nil || !created.Success || created.MigrationID != 1 || !strings.Contains(created.AppliedSQL, `CREATE TABLE "t"`) {
		t.Fatalf("%+v, %v", created, err)
	}

	_, err = db.CreateTable(t.Context(), changelog.By{Run: 4}, schema.TableSpec{Name: "T", Purpose: "p", Columns: spec.Columns})
	wantError(t, err, "invalid_args", "name", "a table named T already exists")
	var bad *dberr.Error
	if errors.As(err, &bad); bad.Retryable {
		t.Error("an existing table will exist the next time as well")
	}

	_, err = db.CreateTable(t.Context(), changelog.By{Run: 4}, schema.TableSpec{Name: "u", Purpose: "p", Columns: spec.Columns, Indexes: spec.Indexes})
	wantError(t, err, "invalid_args", "indexes[0].name", "on the table t")
	insert(t, db, "t", map[string]any{"a": "007"})
	if got := ask(t, db, "select id, a, n from t"); got != `[[1,"007",7]]` {
		t.Error(got)
	}

	schema, err := db.Schema(t.Context())
	if err != nil || len(schema.Tables) != 1 || schema.Tables[0].Purpose != "things" || schema.Tables[0].RowCount != 1 || len(schema.Tables[0].Columns) != 3 {
		t.Errorf("%+v, %v", schema, err)
	}
	if got := system(t, db, `select group_concat(op || ':' || "table" || ':' || run_id || ':' || actor) from _changelog`); got != "schema:t:4:agent,insert:t:1:agent" {
		t.Error(got)
	}
}

// OSA-51, C-3: the host's columns are ISO text in UTC, and a trigger updates _updated_at.
func TestHostColumns(t *testing.T) {
	row, times := contract.Of(t, "OSA-51"), contract.Of(t, "C-3")
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"amount": 1})
	rows, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select " + strings.Join(row.Between("columns ", ", and a trigger"), ", ") + " from expenses"})
	if err != nil || strings.Join(rows.Columns, " ") != "_created_at _updated_at _deleted_at" {
		t.Fatal(rows.Columns, err)
	}
	digits := regexp.MustCompile(`\d`)
	if got := rows.Rows[0]["_created_at"].(string); digits.ReplaceAllString(got, "0") != digits.ReplaceAllString(times.Quote("2026-01-02T03:04:05.678Z"), "0") {
		t.Errorf("a time is %s", got)
	}
	if got := system(t, db, "select sql from sqlite_master where name = 'expenses'"); !strings.Contains(got, fmt.Sprintf("%q ", row.Quote("id"))+row.Quote("INTEGER PRIMARY KEY AUTOINCREMENT")) {
		t.Errorf("the table is %s", got)
	}

	valid, most := regexp.MustCompile("^"+row.Quote("[A-Za-z_][A-Za-z0-9_]*")+"$"), row.Number("128")
	for _, name := range []string{"a", "Az_09", "x_", "9a", "a-b", "a b", "ä", strings.Repeat("n", most), strings.Repeat("n", most+1)} {
		_, err := db.CreateTable(t.Context(), changelog.By{}, schema.TableSpec{Name: name, Purpose: "p", Columns: []schema.Column{{Name: "c", Type: "TEXT"}}})
		if (err == nil) != (valid.MatchString(name) && len(name) <= most) {
			t.Errorf("the name %q: %v", name, err)
		}
	}

	at, err := time.Parse("2006-01-02T15:04:05.000Z", rows.Rows[0]["_created_at"].(string))
	if err != nil || time.Since(at) > time.Minute || rows.Rows[0]["_updated_at"] != rows.Rows[0]["_created_at"] || rows.Rows[0]["_deleted_at"] != nil {
		t.Errorf("%v, %v", rows.Rows[0], err)
	}

	raw(t, db, `update expenses set _updated_at = '2000-01-01T00:00:00.000Z'`)
	if got := ask(t, db, "select _updated_at from expenses"); got != `[["2000-01-01T00:00:00.000Z"]]` {
		t.Errorf("the trigger touched an _updated_at that was given: %s", got)
	}
	raw(t, db, `update expenses set amount = 2`)
	if got := ask(t, db, "select _updated_at > '2020' from expenses"); got != "[[1]]" {
		t.Error("the trigger did not touch _updated_at")
	}

	// The id of a hard-deleted row is never reused.
	raw(t, db, "delete from expenses")
	if in := insert(t, db, "expenses", map[string]any{"amount": 1}); fmt.Sprint(in.IDs) != "[2]" {
		t.Errorf("after a row that is gone: %v", in.IDs)
	}
}

// OSA-54, OSA-61, C-14
func TestInsert(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	in := insert(t, db, "expenses",
		map[string]any{"category": "food", "amount": 12.5, "note": nil},
		map[string]any{"Category": "travel", "amount": json.Number("3")},
		map[string]any{"category": true, "note": map[string]any{"a": []any{1}}})
	if fmt.Sprint(in.IDs) != "[1 2 3]" || in.Count != 3 {
		t.Errorf("%+v", in)
	}
	if got := ask(t, db, "select category, amount, note from expenses order by id"); got != `[["food",12.5,null],["travel",3,"none"],["1",null,"{\"a\":[1]}"]]` {
		t.Error(got)
	}

	// Row 2 omits note and gets its default, so it is a separate chunk.
	if got := system(t, db, `select json_group_array(pk) from _changelog where op = 'insert'`); got != `["{\"column\":\"id\",\"from\":1,\"to\":1,\"count\":1}","{\"column\":\"id\",\"from\":2,\"to\":2,\"count\":1}","{\"column\":\"id\",\"from\":3,\"to\":3,\"count\":1}"]` {
		t.Error(got)
	}
	if got := system(t, db, `select after from _changelog where op = 'insert' limit 1`); got != `{"columns":["category","amount","note"],"rows":[["food",12.5,null]]}` {
		t.Error(got)
	}

	for name, c := range map[string]struct {
		table string
		row   map[string]any
		kind  string
		field string
		part  string
	}{
		"no table":     {"expense", map[string]any{"a": 1}, "not_found", "table", "did you mean expenses?"},
		"system table": {"_calls", map[string]any{"a": 1}, "invalid_args", "table", "belongs to the host"},
		"no column":    {"expenses", map[string]any{"categry": 1}, "invalid_args", "rows[0].categry", "did you mean category?"},
		"one column":   {"expenses", map[string]any{"amount": 1, "categry": 1}, "invalid_args", "rows[0].categry", "did you mean category?"},
		"host column":  {"expenses", map[string]any{"_created_at": 1}, "invalid_args", "rows[0]._created_at", "written by the host"},
		"nothing":      {"expenses", map[string]any{}, "invalid_args", "", "no value at all"},
		"taken id":     {"expenses", map[string]any{"id": 2, "amount": 1}, "invalid_args", "", "row 1: another row already has the same expenses.id"},
		"text id":      {"expenses", map[string]any{"id": "x", "amount": 1}, "invalid_args", "", "row 1: the primary key must be a whole number"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := db.Insert(t.Context(), changelog.By{}, c.table, []map[string]any{c.row})
			wantError(t, err, c.kind, c.field, c.part)
		})
	}

	_, err := db.Insert(t.Context(), changelog.By{}, "expenses", nil)
	wantError(t, err, "invalid_args", "rows", "no row")
	if got := ask(t, db, "select count(*) from expenses"); got != "[[3]]" {
		t.Error("a refused row was written:", got)
	}
}

func TestInsertGivesPrimaryKeys(t *testing.T) {
	db := fresh(t)
	key := func(name, typ string) schema.Column { return schema.Column{Name: name, Type: typ, PrimaryKey: true} }
	for table, columns := range map[string][]schema.Column{
		"by_text": {key("k", "TEXT")}, "by_two": {key("a", "TEXT"), key("b", "INTEGER")}, "by_number": {key("n", "INTEGER")},
	} {
		if _, err := db.CreateTable(t.Context(), changelog.By{}, schema.TableSpec{Name: table, Purpose: "p", Columns: append(columns, schema.Column{Name: "v", Type: "TEXT"})}); err != nil {
			t.Fatal(err)
		}
	}

	for table, c := range map[string]struct {
		rows []map[string]any
		want string
	}{
		"by_text":   {[]map[string]any{{"k": "x"}, {"k": "y"}}, `["x","y"]`},
		"by_two":    {[]map[string]any{{"a": "x", "b": 1}}, `[["x",1]]`},
		"by_number": {[]map[string]any{{"v": "a"}, {"n": 10, "v": "b"}, {"n": nil, "v": "c"}, {"v": "d"}, {"n": 30}, {"n": 20}}, `[1,10,11,12,30,20]`},
	} {
		got, err := json.Marshal(insert(t, db, table, c.rows...).IDs)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, want %s", table, got, c.want)
		}
	}

	_, err := db.Insert(t.Context(), changelog.By{}, "by_two", []map[string]any{{"a": "z"}})
	wantError(t, err, "invalid_args", "", "a value is missing in by_two.b")
}

// Inserting more than one chunk returns every id and writes one changelog row per chunk (C-14).
func TestInsertManyRows(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	chunk := contract.Of(t, "C-14").Number("1,000")
	rows := make([]map[string]any, 2*chunk+500)
	for i := range rows {
		rows[i] = map[string]any{"amount": i}
	}

	in := insert(t, db, "expenses", rows...)
	if in.Count != 2500 || len(in.IDs) != 2500 || fmt.Sprint(in.IDs[2499]) != "2500" {
		t.Errorf("%d ids, the last is %v", len(in.IDs), in.IDs[len(in.IDs)-1])
	}
	if got := ask(t, db, "select count(*), sum(amount = id - 1) from expenses"); got != "[[2500,2500]]" {
		t.Error(got)
	}
	if got := system(t, db, `select group_concat(pk, ' ') from _changelog where op = 'insert'`); got != `{"column":"id","from":1,"to":1000,"count":1000} {"column":"id","from":1001,"to":2000,"count":1000} {"column":"id","from":2001,"to":2500,"count":500}` {
		t.Error(got)
	}
}

// Long or wide rows do not exceed SQLite's limits or make changelog entries far larger than 1
// MiB.
func TestInsertOfLongAndWideRows(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	var long, wide []map[string]any
	for range 25 {
		long = append(long, map[string]any{"note": strings.Repeat("x", 100_000)})
	}
	insert(t, db, "expenses", long...)
	if got := system(t, db, `select group_concat(json_extract(pk, '$.count')) from _changelog where op = 'insert'`); got != "11,11,3" {
		t.Errorf("the chunks have %s rows", got)
	}

	spec := schema.TableSpec{Name: "wide", Purpose: "p"}
	row := map[string]any{}
	for i := range 40 {
		spec.Columns = append(spec.Columns, schema.Column{Name: fmt.Sprint("c", i), Type: "INTEGER"})
		row[fmt.Sprint("c", i)] = i
	}
	if _, err := db.CreateTable(t.Context(), changelog.By{}, spec); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		wide = append(wide, row)
	}
	if in := insert(t, db, "wide", wide...); in.Count != 1000 {
		t.Errorf("%d rows", in.Count)
	}
}

// One call writes at most 10,000 rows.
func TestManyRowsOfOneCall(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	execute(t, db, "create table t(k integer not null unique, a)")
	rows := make([]map[string]any, 10_001)
	for i := range rows {
		rows[i] = map[string]any{"k": i}
	}

	_, err := db.Insert(t.Context(), changelog.By{}, "t", rows)
	wantError(t, err, "invalid_args", "rows", "10001 rows are more than the 10000")
	wantError(t, second(db.Upsert(t.Context(), changelog.By{}, "t", []string{"k"}, rows)), "invalid_args", "rows", "10001 rows are more than the 10000")
	if in, err := db.Insert(t.Context(), changelog.By{}, "t", rows[1:]); err != nil || in.Count != 10_000 {
		t.Error(in.Count, err)
	}
	for _, row := range rows {
		row["a"] = "x"
	}
	if done, err := db.Upsert(t.Context(), changelog.By{}, "t", []string{"k"}, rows[:10_000]); err != nil || done.Rows != 10_000 {
		t.Error(done.Rows, err)
	}
	if got := ask(t, db, "select count(*), count(a) from t"); got != "[[10001,10000]]" {
		t.Error(got)
	}
}

// The promise "database effects happen once": a call that is repeated after the process died
// returns the same result and has no further effect.
func TestReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sqlite")
	spec := schema.TableSpec{Name: "t", Purpose: "p", Columns: []schema.Column{{Name: "a", Type: "TEXT"}}}
	type results struct {
		Created  schema.Created
		Inserted agentdb.Inserted
		Imported transfer.Imported
	}

	all := func(db *agentdb.DB, file string) string {
		var r results
		var err error
		if r.Created, err = db.CreateTable(t.Context(), changelog.By{Run: 7, Key: "p1"}, spec); err != nil {
			t.Fatal(err)
		}
		if r.Inserted, err = db.Insert(t.Context(), changelog.By{Run: 7, Key: "p2.0"}, "t", []map[string]any{{"a": "x"}, {"a": "y"}}); err != nil {
			t.Fatal(err)
		}
		if r.Imported, err = db.Import(t.Context(), changelog.By{Run: 7, Key: "p3"}, transfer.ImportSpec{Table: "u", Name: "u.csv", Source: strings.NewReader(file)}); err != nil {
			t.Fatal(err)
		}

		text, err := json.Marshal(r) // the form that the model receives
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	first := all(open(t, path), "a,b\n1,2\n")
	again := all(open(t, path), "the file is gone") // the first database was never closed: its process died
	if first != again {
		t.Errorf("the replay gave %s, the call %s", again, first)
	}

	db := open(t, path)
	if got := ask(t, db, "select (select count(*) from t), (select count(*) from u)"); got != "[[2,1]]" {
		t.Error("rows were written twice:", got)
	}

	stored, ok, err := db.Replay(t.Context(), 7, "p2.0")
	if err != nil || !ok || string(stored) != `{"ids":[1,2],"count":2}` {
		t.Errorf("%s, %v, %v", stored, ok, err)
	}
	if _, ok, err := db.Replay(t.Context(), 8, "p2.0"); ok || err != nil {
		t.Errorf("a call of another run was found (%v)", err)
	}

	// A key that now belongs to another operation is not replayed, and no row is written.
	if _, err := db.Insert(t.Context(), changelog.By{Run: 7, Key: "p1"}, "t", []map[string]any{{"a": "z"}}); err == nil || !strings.Contains(err.Error(), "was a create_table before") {
		t.Errorf("error %v", err)
	}

	// A rejected call stores no result, so it may be repeated.
	by := changelog.By{Run: 7, Key: "p4"}
	if _, err := db.Insert(t.Context(), by, "t", []map[string]any{{"nope": 1}}); err == nil {
		t.Fatal("an unknown column was taken")
	}
	if _, err := db.Insert(t.Context(), by, "t", []map[string]any{{"a": "w"}}); err != nil {
		t.Error(err)
	}
}

// The journal keeps calls for ninety days.
func TestJournalForgets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sqlite")
	db := open(t, path)
	expenses(t, db)
	for run, age := range map[int64]time.Duration{1: 91 * 24 * time.Hour, 2: 89 * 24 * time.Hour} {
		if _, err := db.Insert(t.Context(), changelog.By{Run: run, Key: "k"}, "expenses", []map[string]any{{"amount": 1}}); err != nil {
			t.Fatal(err)
		}
		raw(t, db, fmt.Sprintf("update _calls set at = '%s' where run = %d", time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000Z"), run))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	if got := system(t, open(t, path), "select group_concat(run) from _calls"); got != "2" {
		t.Errorf("it has the runs %s", got)
	}
}

// Two attempts that make the same call concurrently execute it once.
func TestReplayUnderConcurrency(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	errs := make(chan error)
	for i := range 32 {
		go func() {
			_, err := db.Insert(context.Background(), changelog.By{Run: 1, Key: fmt.Sprint("k", i%4)}, "expenses", []map[string]any{{"amount": i}})
			errs <- err
		}()
	}

	for range 32 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}

	if got := ask(t, db, "select count(*) from expenses"); got != "[[4]]" {
		t.Error(got)
	}
}

func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sqlite")
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}

	_, err := agentdb.Open(t.Context(), agentdb.Options{Path: path})
	var corrupt *sqlite.CorruptError
	if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
}

// OSA-62: a write that exceeds the quota is kept and the next one is rejected. Reading and
// replaying still work.
func TestQuota(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sqlite")
	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: path, Quota: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	expenses(t, db)
	var warnings []string
	n := 0
	for ; n < 100; n++ {
		in, err := db.Insert(t.Context(), changelog.By{Run: 1, Key: fmt.Sprint(n)}, "expenses", []map[string]any{{"note": strings.Repeat("x", 50_000)}})
		warnings = append(warnings, in.Warnings...)
		if err != nil {
			wantError(t, err, "rejected", "", "its quota is 1.0 MiB")
			break
		}
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "of its quota") {
		t.Errorf("warnings %q, want one when 80 %% are crossed", warnings)
	}
	if got := ask(t, db, "select count(*) from expenses"); got != fmt.Sprintf("[[%d]]", n) || n < 5 || n > 20 {
		t.Errorf("%s rows of 100 KiB each were written within 1 MiB, %d calls", got, n)
	}
	if _, err := db.Insert(t.Context(), changelog.By{Run: 1, Key: "0"}, "expenses", nil); err == nil {
		t.Error("no rows at all were inserted")
	}

	if _, err := db.Insert(t.Context(), changelog.By{Run: 1, Key: "0"}, "expenses", []map[string]any{{"note": "x"}}); err != nil {
		t.Errorf("a call that was made before cannot be replayed: %v", err)
	}

	if again, err := agentdb.Open(t.Context(), agentdb.Options{Path: path, Quota: 1 << 20}); err != nil {
		t.Error(err)
	} else {
		_, err := again.Insert(t.Context(), changelog.By{}, "expenses", []map[string]any{{"amount": 1}})
		wantError(t, err, "rejected", "", "quota")
		again.Close()
	}
}
