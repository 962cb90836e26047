package agentdb_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
)

func execute(t testing.TB, db *agentdb.DB, sql string, params ...any) agentdb.Executed {
	t.Helper()
	done, err := db.Execute(t.Context(), changelog.By{Run: 9}, agentdb.ExecuteSpec{SQL: sql, Params: params})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return done
}

// OSA-57: several statements run in one transaction and give one result.
func TestExecute(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	done := execute(t, db, `insert into expenses(category, amount) values ('food', 1), ('food', 2), ('rent', 3);
		update expenses set amount = amount + 10; -- all of them
		select * from expenses; delete from expenses where category = 'rent'`)
	if done.RowsAffected != 7 || done.SelectRows != 3 || !strings.Contains(done.Warning, "UPDATE without WHERE") {
		t.Errorf("%+v", done)
	}
	if got := ask(t, db, "select category, amount from expenses order by id"); got != `[["food",11],["food",12]]` {
		t.Error(got)
	}

	named, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{
		SQL: "update expenses set note = :n where amount = :a; update expenses set note = :n where amount = 12", Named: map[string]any{"n": "x", "a": 11},
	})
	if err != nil || named.RowsAffected != 2 || named.Warning != "" {
		t.Errorf("%+v %v", named, err)
	}

	if done := execute(t, db, "update expenses set note = ? where amount = ?", "y", 11); done.RowsAffected != 1 {
		t.Errorf("with a list of values: %+v", done)
	}

	// An error also rolls back the statements before it.
	if _, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: "delete from expenses where 1; insert into nowhere values (1)"}); err == nil {
		t.Error("no error")
	}
	if got := ask(t, db, "select count(*) from expenses"); got != `[[2]]` {
		t.Error(got)
	}

	// Execute sees deleted rows, and a call is executed once.
	if _, err := db.Delete(t.Context(), changelog.By{Run: 9}, "expenses", map[string]any{"amount": 11}); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		done, err := db.Execute(t.Context(), changelog.By{Run: 9, Key: "k"}, agentdb.ExecuteSpec{SQL: "update expenses set amount = amount + 1 where 1"})
		if err != nil || done.RowsAffected != 2 {
			t.Errorf("%+v %v", done, err)
		}
	}

	if got := ask(t, db, "select amount from expenses"); got != `[[13]]` {
		t.Error(got)
	}
}

// OSA-57: a trigger may delete and update rows. Creating one that updates a whole table gives a
// warning.
func TestExecuteTriggers(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	for sql, warning := range map[string]string{
		"create trigger a after delete on expenses begin delete from expenses where id = (select max(id) from expenses); end":                                             "",
		"create trigger b after update of note on expenses begin update expenses set note = upper(note) where id = new.id; end":                                           "",
		"create trigger c after insert on expenses begin insert into expenses(id, amount) values (new.id, 1) on conflict(id) do update set amount = excluded.amount; end": "",
		"create trigger d after insert on expenses begin select 1 where 1; update expenses set note = ''; end":                                                            "the trigger holds an UPDATE without WHERE",
	} {
		if done := execute(t, db, sql); !strings.HasPrefix(done.Warning, warning) || warning == "" && done.Warning != "" {
			t.Errorf("%s: %q", sql, done.Warning)
		}
	}

	// A trigger ends at its own END, not at that of a CASE. The text after it is a separate
	// statement.
	db = fresh(t)
	expenses(t, db)
	done := execute(t, db, `create trigger e after insert on expenses begin
		update expenses set note = case when new.amount > 1 then 'much' else 'little' end where id = new.id; select case when 1 then 2 end; end;
		insert into expenses(amount) values (5)`)
	if got := ask(t, db, "select note from expenses"); done.RowsAffected != 1 || got != `[["much"]]` {
		t.Errorf("%+v: %s", done, got)
	}
	if got := system(t, db, `select count(*) from _changelog where "table" = 'expenses' and op = 'raw' and after is not null`); got != "1" {
		t.Errorf("the changelog has %s entries, want the row as the trigger left it", got)
	}
}

// A statement may end in a word whose upper case is longer, or in invalid UTF-8.
func TestLastWordInCapitals(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	for _, sql := range []string{"with \x96", "with ɐ", "select ɐ", "delete from expenses where note = ɐ", "update expenses set note = \x96"} {
		if _, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql}); err == nil {
			t.Errorf("%q is answered", sql)
		}
		if _, err := db.Execute(t.Context(), changelog.By{Run: 1}, agentdb.ExecuteSpec{SQL: sql}); err == nil {
			t.Errorf("%q is executed", sql)
		}
	}
	raw(t, db, "alter table expenses add column ɐ text")
	if got := ask(t, db, "with x as (select 1) select count(*) from expenses order by ɐ"); got != "[[0]]" {
		t.Error(got)
	}
}

// OSA-57: rejected before running, with the reason, an alternative, and the place.
func TestExecuteRefuses(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"amount": 1})
	before := system(t, db, "select count(*) from _changelog")

	for sql, part := range map[string]string{
		"drop table expenses":                        "delete them with db_delete",
		"select 1;\n  DROP /* now */ TABLE expenses": "(line 2, column 3)",
		"drop database x":                            "only an INDEX",
		"drop":                                       "only an INDEX",
		"; delete from expenses":                     "without WHERE",
		"select 1;  with a as (select 1) delete from expenses":  "(line 1, column 33)",
		"update expenses set note = 'amout', amout = 2 where 1": "(line 1, column 37)",
		"$x": "more parameters",
		"create temp trigger t after insert on expenses begin select 1; end": "WITH clause",
		"truncate table expenses":                                                   "db_delete",
		"delete from expenses":                                                      "without WHERE",
		"with a as (select 1 where 1) delete from expenses":                         "without WHERE",
		"delete from expenses returning (select 1 where 1)":                         "without WHERE",
		"create trigger t after insert on expenses begin delete from expenses; end": "without WHERE",
		"create trigger t after update of note on expenses when old.id in (select 1 where 1) begin select 1 where 1; delete from expenses; end": "(line 1, column 109)",
		"create trigger begin after delete on expenses begin delete from expenses where id = 1; delete from expenses; end":                      "without WHERE",
		"create trigger t after insert on expenses begin delete from expenses where id in (select 1); end; delete from expenses":                "without WHERE",
		"attach 'x.db' as x":                                           "db_import",
		"detach main":                                                  "db_import",
		"select load_extension('x')":                                   "SQLite's own functions",
		"pragma user_version = 3":                                      "db_schema lists",
		"pragma table_info(expenses)":                                  "db_schema lists",
		"delete from _changelog where 1":                               "belongs to the host",
		"insert or replace into main._calls values (1)":                "belongs to the host",
		"update \"_tables_meta\" set purpose = ''":                     "belongs to the host",
		"vacuum into 'x'":                                              "looks after the file",
		"begin":                                                        "one transaction already",
		"create temp table x(a)":                                       "WITH clause",
		"create virtual table x using fts5(a)":                         "ordinary table",
		"create table x as select 1":                                   "db_create_table",
		"alter table expenses drop column note":                        "for ever",
		"create table x(_deleted_at text)":                             "use db_create_table",
		"create table x(rowid text)":                                   "hides SQLite's own",
		"create table _x(a)":                                           "reaches the agent's own tables",
		"create trigger t after insert on _calls begin select 1; end":  "reaches the agent's own tables",
		"drop trigger _touch_expenses":                                 "reaches the agent's own tables",
		"insert into expenses(amount) select seq from sqlite_sequence": "reaches the agent's own tables",
		"insert into expenses(amount) select count(*) from dbstat":     "reaches the agent's own tables",
		"insert into expense(amount) values (1)":                       "no such table: expense; did you mean expenses?; nothing was written (line 1, column 13)\n  insert into expense(amount) values (1)\n              ^",
		"update expenses\nset amout = 2 where 1":                       "no such column: amout; did you mean amount?; nothing was written (line 2, column 5)",
		"insert into expenses(amount) valeus (1)":                      "(line 1, column 30)",
		"insert into expenses(id) values (1)":                          "another row already has the same expenses.id",
		"insert into expenses(amount) values ('a":                      "(line 1, column 38)",
		"": "no statement",
		"insert into expenses(amount) values (?)": "more parameters",
	} {
		_, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: sql})
		var bad *dberr.Error
		if !errors.As(err, &bad) || !strings.Contains(bad.Text(), part) {
			t.Errorf("%s:\n%v", sql, err)
		}
	}

	if _, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: "select 1; select ?", Params: []any{1}}); err == nil || !strings.Contains(err.Error(), "for :name") {
		t.Error(err)
	}
	if after := system(t, db, "select count(*) from _changelog"); after != before {
		t.Errorf("the changelog grew from %s to %s rows", before, after)
	}
}

// OSA-57: if a trigger or view contains the denied action, the error names it, because the
// statement itself is allowed.
func TestExecuteNamesTheTrigger(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	if _, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: `create view past as select * from _changelog;
		create trigger tidy after insert on expenses begin delete from _changelog where 1; end;
		create trigger count after delete on expenses begin update sqlite_sequence set seq = 0; end`}); err != nil {
		t.Fatal(err)
	}

	for sql, part := range map[string]string{
		"insert into expenses(amount) values (1)": "not authorized in the trigger tidy of expenses, which this statement uses (DROP TRIGGER takes it away)",
		"delete from expenses where 1":            "not authorized in the trigger count of expenses",
		"select * from past":                      "in the view past, which this statement uses",
		"create table _x(a)":                      "not authorized: SQL reaches",
	} {
		_, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: sql})
		wantError(t, err, "rejected", "sql", part)
	}

	row := []map[string]any{{"amount": 1}}
	_, inserted := db.Insert(t.Context(), changelog.By{}, "expenses", row)
	_, upserted := db.Upsert(t.Context(), changelog.By{}, "expenses", []string{"amount"}, row)
	for _, err := range []error{inserted, upserted} {
		wantError(t, err, "invalid_args", "", "a trigger, a view or a default of this table reaches for what is not the agent's")
	}

	if _, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: "drop trigger tidy; insert into expenses(amount) values (1)"}); err != nil {
		t.Error(err)
	}
}

// OSA-55
func TestUpdateDeleteRestore(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"category": "a", "amount": 1}, map[string]any{"category": "a"}, map[string]any{"category": "b", "amount": 2})
	by := changelog.By{Run: 5}
	check := func(done agentdb.Affected, err error) func(want int64) {
		return func(want int64) {
			t.Helper()
			if err != nil || done.Rows != want {
				t.Errorf("%d rows, want %d, %v", done.Rows, want, err)
			}
		}
	}

	check(db.Update(t.Context(), by, "Expenses", map[string]any{"Amount": 7}, map[string]any{"category": "a", "amount": nil}, false))(1)
	check(db.Delete(t.Context(), by, "expenses", map[string]any{"category": "a"}))(2)
	check(db.Delete(t.Context(), by, "expenses", map[string]any{"category": "a"}))(0)
	if got := ask(t, db, "select id from expenses"); got != `[[3]]` {
		t.Error(got)
	}

	check(db.Update(t.Context(), by, "expenses", map[string]any{"note": "n"}, map[string]any{"category": "a"}, false))(0)
	check(db.Update(t.Context(), by, "expenses", map[string]any{"note": "n"}, map[string]any{"category": "a"}, true))(2)
	check(db.Restore(t.Context(), by, "expenses", map[string]any{"id": 2}))(1)
	if got := ask(t, db, "select id, amount, note from expenses order by id"); got != `[[2,7,"n"],[3,2,"none"]]` {
		t.Error(got)
	}

	// OSA-61, C-14: before and after per row, with the operation of the tool.
	if got := system(t, db, `select group_concat(op || pk || json_remove(before, '$._updated_at') || json_remove(after, '$._updated_at', '$._deleted_at'), ' ') from _changelog where op = 'update' or op = 'soft_delete'`); got !=
		`update{"id":2}{"amount":null}{"amount":7.0} soft_delete{"id":1}{"_deleted_at":null}{} soft_delete{"id":2}{"_deleted_at":null}{} update{"id":1}{"note":"none"}{"note":"n"} update{"id":2}{"note":"none"}{"note":"n"}` {
		t.Error(got)
	}

	raw(t, db, "insert into expenses(note) values (zeroblob(100000))", "delete from expenses where typeof(note) = 'blob'") // leaves free pages
	stats, err := db.Stats(t.Context())
	if err != nil || len(stats.Tables) != 1 || stats.Tables[0].Rows != 2 || stats.Tables[0].Deleted != 1 || stats.LogBytes == 0 || stats.FreeBytes < 100000/4096*4096 {
		t.Errorf("%+v, %v", stats, err)
	}

	execute(t, db, "create table raw(a, b)")
	for name, c := range map[string]struct {
		err   error
		field string
		part  string
	}{
		"no where":       {second(db.Delete(t.Context(), by, "expenses", nil)), "where", "which rows"},
		"one of several": {second(db.Delete(t.Context(), by, "expenses", map[string]any{"id": []any{1, 2}})), "where.id", "one of several values"},
		"update all":     {second(db.Update(t.Context(), by, "expenses", map[string]any{"note": 1}, nil, false)), "where", "db_execute"},
		"nothing set":    {second(db.Update(t.Context(), by, "expenses", nil, map[string]any{"id": 1}, false)), "set", "which columns"},
		"host column":    {second(db.Update(t.Context(), by, "expenses", map[string]any{"_deleted_at": 1}, map[string]any{"id": 1}, false)), "set._deleted_at", "written by the host"},
		"unknown":        {second(db.Restore(t.Context(), by, "expenses", map[string]any{"categry": 1})), "where.categry", "did you mean category?"},
		"raw":            {second(db.Delete(t.Context(), by, "raw", map[string]any{"a": 1})), "table", "db_execute"},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, c.err, "invalid_args", c.field, c.part) })
	}
}

func second(_ agentdb.Affected, err error) error { return err }

// OSA-54
func TestUpsert(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	by := changelog.By{Run: 5}
	for i, want := range []string{`[["a",1],["b",2]]`, `[["a",5],["b",2],["c",6]]`} {
		rows := [][]map[string]any{
			{{"category": "a", "amount": 1}, {"category": "b", "amount": 2}},
			{{"category": "a", "amount": 5}, {"category": "c", "amount": 6}},
		}[i]
		if done, err := db.Upsert(t.Context(), by, "expenses", []string{"Category"}, rows); err != nil || done.Rows != 2 {
			t.Fatal(done, err)
		}
		if got := ask(t, db, "select category, amount from expenses order by 1"); got != want {
			t.Error(got)
		}
	}

	// If a row has only keys, an existing row is unchanged. A deleted row is restored.
	if done, err := db.Upsert(t.Context(), by, "expenses", []string{"category"}, []map[string]any{{"category": "a"}, {"category": "d"}}); err != nil || done.Rows != 1 {
		t.Error(done, err)
	}
	if _, err := db.Delete(t.Context(), by, "expenses", map[string]any{"category": "a"}); err != nil {
		t.Error(err)
	}
	if _, err := db.Upsert(t.Context(), by, "expenses", []string{"category"}, []map[string]any{{"category": "a", "amount": 9}}); err != nil {
		t.Error(err)
	}

	if got := ask(t, db, "select id, amount from expenses where category = 'a'"); got != `[[1,9]]` {
		t.Error(got)
	}

	wantError(t, second(db.Upsert(t.Context(), by, "expenses", []string{"category"}, []map[string]any{{"amount": 1}})), "invalid_args", "rows[0].category", "row 1 has no value in the key column")
	wantError(t, second(db.Upsert(t.Context(), by, "expenses", []string{"category"}, []map[string]any{{"category": nil, "amount": 1}})), "invalid_args", "rows[0].category", "no value in the key column")
	execute(t, db, "create table numbers(k text primary key not null, n integer not null)")
	wantError(t, second(db.Upsert(t.Context(), by, "numbers", []string{"k"}, []map[string]any{{"k": "a", "n": 1}, {"k": "b", "n": nil}})), "invalid_args", "", "row 2: a value is missing in numbers.n")
	wantError(t, second(db.Upsert(t.Context(), by, "expenses", nil, []map[string]any{{"amount": 1}})), "invalid_args", "key_columns", "tell rows apart")
	wantError(t, second(db.Upsert(t.Context(), by, "expenses", []string{"note"}, []map[string]any{{"note": "x"}})), "invalid_args", "key_columns", "already has rows with the same note")
}

// Background problems are logged only to the logger in Options.
func TestLogger(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "db.sqlite")
	db := open(t, path)
	expenses(t, db)
	if err := errors.Join(db.Close(), os.RemoveAll(filepath.Join(dir, "migrations")), os.WriteFile(filepath.Join(dir, "migrations"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "migrations could not be written") || !strings.Contains(got, path) {
		t.Errorf("%s", got)
	}
}

// OSA-53: migrations have numbered files, written after the commit and again if they are missing.
func TestMigrations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "db.sqlite"))
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"category": "old"})
	no := false
	by := changelog.By{Run: 3}
	altered, err := db.AlterTable(t.Context(), by, "expenses", []schema.Column{
		{Name: "unit", Type: "TEXT", Nullable: &no}, {Name: "n", Type: "INT", Nullable: &no}, {Name: "raw", Type: "BLOB", Nullable: &no}, {Name: "d", Type: "TEXT", Default: json.RawMessage(`"x"`)}, {Name: "free", Type: "TEXT"},
	})
	if err != nil || !altered.Success || altered.MigrationID != 2 || !strings.Contains(altered.AppliedSQL, `ADD COLUMN "unit" TEXT NOT NULL DEFAULT ''`) {
		t.Fatalf("%+v %v", altered, err)
	}
	if got := ask(t, db, "select unit, n, hex(raw), d, free from expenses"); got != `[["",0,"","x",null]]` {
		t.Error(got)
	}

	migrated, err := db.Migrate(t.Context(), by, agentdb.MigrateSpec{
		Up: "create table rates(id integer primary key, rate real); insert into rates(rate) values (1.5)", Down: "drop table rates", Description: "Add rates: " + strings.Repeat("very ", 20) + "long",
	})
	if err != nil || migrated.MigrationID != 3 {
		t.Fatalf("%+v %v", migrated, err)
	}

	files := []string{"0001-create-expenses.sql", "0001-create-expenses.down.sql", "0002-alter-expenses.sql", "0002-alter-expenses.down.sql", "0003-add-rates-very-very-very-very-very-very-very.sql"}
	for _, name := range files {
		if _, err := os.Stat(filepath.Join(dir, "migrations", name)); err != nil {
			t.Error(err)
		}
	}

	if got := system(t, db, `select actor from _changelog where "table" = 'rates' limit 1`); got != "migration" {
		t.Errorf("actor %s", got)
	}

	// A failed migration leaves no file. If the process is killed before it writes the files,
	// they are written later.
	if _, err := db.Migrate(t.Context(), by, agentdb.MigrateSpec{Up: "create table a(x); create table a(x)", Down: "drop table a", Description: "twice"}); err == nil {
		t.Error("no error")
	}

	entries, err := os.ReadDir(filepath.Join(dir, "migrations"))
	if err != nil || len(entries) != 6 {
		t.Error(entries, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "migrations")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "schema.sql")); err != nil {
		t.Fatal(err)
	}

	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	open(t, filepath.Join(dir, "db.sqlite"))
	for _, name := range files {
		if _, err := os.Stat(filepath.Join(dir, "migrations", name)); err != nil {
			t.Error(err)
		}
	}

	text, err := os.ReadFile(filepath.Join(dir, "schema.sql"))
	if err != nil || !strings.Contains(string(text), "-- What was spent\nCREATE TABLE \"expenses\"") || !strings.Contains(string(text), "rates") || strings.Contains(string(text), "_changelog") {
		t.Errorf("%s %v", text, err)
	}
}

// OSA-53
func TestAlterTableRefuses(t *testing.T) {
	db := fresh(t)
	expenses(t, db)

	for field, c := range map[string]struct {
		table  string
		column schema.Column
	}{
		"add_columns[0].name":        {"expenses", schema.Column{Name: "Note", Type: "TEXT"}},
		"add_columns[0].primary_key": {"expenses", schema.Column{Name: "k", Type: "TEXT", PrimaryKey: true}},
		"add_columns[0].type":        {"expenses", schema.Column{Name: "k", Type: "POINT"}},
		"add_columns[0].default":     {"expenses", schema.Column{Name: "k", Type: "TEXT", Default: json.RawMessage(`"CURRENT_TIMESTAMP"`)}},
		"name":                       {"_calls", schema.Column{Name: "k", Type: "TEXT"}},
	} {
		_, err := db.AlterTable(t.Context(), changelog.By{}, c.table, []schema.Column{c.column})
		wantError(t, err, "invalid_args", field, "")
	}
}

// OSA-62: after the quota is exceeded, every tool's next write is rejected.
func TestQuotaOfEveryWrite(t *testing.T) {
	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: filepath.Join(t.TempDir(), "db.sqlite"), Quota: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	expenses(t, db)
	done := execute(t, db, "insert into expenses(note) values (hex(zeroblob(600000)))")
	if len(done.Warnings) != 1 || !strings.Contains(done.Warnings[0], "quota") {
		t.Errorf("%+v", done)
	}

	_, execErr := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: "update expenses set note = '' where 1"})
	_, migrateErr := db.Migrate(t.Context(), changelog.By{}, agentdb.MigrateSpec{Up: "create table x(a)", Down: "drop table x", Description: "x"})
	_, updateErr := db.Update(t.Context(), changelog.By{}, "expenses", map[string]any{"note": ""}, map[string]any{"id": 1}, false)
	for _, err := range []error{execErr, migrateErr, updateErr} {
		wantError(t, err, "rejected", "", "raise database.quota")
	}

	stats, err := db.Stats(t.Context())
	if err != nil || stats.Bytes < 1<<20 || stats.Quota != 1<<20 || len(stats.Tables) != 1 || stats.Tables[0].Rows != 1 || stats.Tables[0].Bytes < 1<<20 || stats.Changes != 3 || stats.ChangelogBytes < 1<<20 {
		t.Errorf("%+v %v", stats, err)
	}
}

// OSA-62: SQLite reports "full" for a disk, for the limit of one write, and for a table without a
// free id. The errors distinguish the causes as far as possible.
func TestFull(t *testing.T) {
	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: filepath.Join(t.TempDir(), "db.sqlite"), Quota: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	expenses(t, db)
	const tooMuch = "insert into expenses(note) values (zeroblob(9000000)), (zeroblob(9000000))"
	_, err = db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: tooMuch})
	wantError(t, err, "rejected", "", "or the disk is full")
	for _, quota := range []int64{0, 20 << 20} { // no limit, and twice the quota
		roomy, err := agentdb.Open(t.Context(), agentdb.Options{Path: filepath.Join(t.TempDir(), "db.sqlite"), Quota: quota})
		if err != nil {
			t.Fatal(err)
		}
		defer roomy.Close()
		expenses(t, roomy)
		execute(t, roomy, "insert into expenses(note) values (zeroblob(9000000))") // over 16 MiB with its changelog
	}

	insert(t, db, "expenses", map[string]any{"id": int64(math.MaxInt64)})
	_, err = db.Insert(t.Context(), changelog.By{}, "expenses", []map[string]any{{"amount": 1}})
	wantError(t, err, "invalid_args", "", "the table expenses has given out the largest id")
	_, err = db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: "insert into expenses(amount) values (1)"})
	wantError(t, err, "invalid_args", "", "the table expenses has given out the largest id")
}
