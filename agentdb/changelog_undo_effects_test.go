package agentdb_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/view"
)

// run is the SQL of one run.
func run(t testing.TB, db *agentdb.DB, run int64, sql string) {
	t.Helper()
	if _, err := db.Execute(t.Context(), changelog.By{Run: run}, agentdb.ExecuteSpec{SQL: sql}); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// replayAtOnce is replay in one write, so that foreign keys are checked at its end.
func replayAtOnce(t testing.TB, db *agentdb.DB) (again *agentdb.DB, rows int64) {
	t.Helper()
	var steps []changelog.Step
	for _, c := range changes(t, db) {
		s, err := c.Steps()
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, s...)
	}

	again = fresh(t)
	done, err := again.Apply(t.Context(), changelog.By{Actor: "user"}, steps)
	if err != nil {
		t.Fatal(err)
	}
	return again, done.Rows
}

// OSA-61: an undo counts its effects and logs them: restored rows as inserts, reset values as
// updates. These entries replay, and so do the entries of their undo.
func TestUndoIsRecorded(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	run(t, db, 1, `create table t("count" integer primary key, a); create table heard(a); insert into t values (1, 'x'), (2, 'y'), (4, 'w');
		create trigger after_insert after insert on t begin insert into heard values (new.a); end;
		create trigger after_delete after delete on t begin insert into heard values (old.a); end`)
	before := contents(t, db)
	run(t, db, 2, "insert into t values (3, 'z'); update t set a = 'Y' where count in (2, 4); delete from t where count = 1")

	out := undo(t, db, changelog.UndoSpec{Run: 2})
	if want := []changelog.UndoneTable{{Name: "heard", Removed: 2}, {Name: "t", Removed: 1, Changed: 2, Restored: 1}}; !out.Done || fmt.Sprint(out.Tables) != fmt.Sprint(want) {
		t.Errorf("%+v, want %v", out, want)
	}
	if got := contents(t, db); got != before {
		t.Errorf("it left:\n%s\nwant:\n%s", got, before)
	}

	const entries = `select group_concat(op || pk, ' ') from (select * from _changelog where actor = 'user' and "table" = 't' order by id)`
	if got := system(t, db, entries); got != `insert{"count":1} update{"count":4} update{"count":2} raw{"count":3}` {
		t.Errorf("the changelog has %s", got)
	}
	if got := system(t, db, "select count(*) from sqlite_schema where type = 'trigger'"); got != "2" {
		t.Errorf("%s triggers are left", got)
	}
	if got := system(t, db, "select count(*) from _migrations"); got != "0" {
		t.Errorf("an undo of rows made %s migrations", got)
	}

	again := replay(t, db)
	if got := contents(t, replay(t, again)); got != before {
		t.Errorf("what was replayed is replayed as:\n%s", got)
	}

	if _, rows := replayAtOnce(t, db); rows != 15 {
		t.Errorf("%d rows were written, want 15: 3, then 4 with 2 of the triggers, and 6 of the undo", rows)
	}
}

// OSA-61: undoing a run's schema changes restores the schema, the host's data about the table,
// and the file that describes the schema.
func TestUndoOfTheSchema(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"alter table expenses rename to costs",
		"alter table expenses rename column note to words",
		"alter table expenses add column more text",
		"drop index expenses_category",
		"drop view noted",
		"drop trigger heard",
		"create table other(a); create table another(a)",
		"create index by_note on expenses(note); create view again as select * from noted",
		"drop view noted; create view noted as select 1 as note",
	} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			db := open(t, filepath.Join(dir, "db.sqlite"))
			expenses(t, db)
			run(t, db, 1, `create view noted as select note from expenses; create trigger heard after insert on expenses begin update expenses set note = 'heard' where id = new.id and note is null; end`)

			state := func() string {
				objects := system(t, db, `select group_concat(type || ' ' || name || ' ' || replace(lower(sql), '"', ''), x'0a') from
					(select * from sqlite_schema where substr(tbl_name, 1, 1) <> '_' and sql is not null order by type, name)`)
				return objects + "\n" + system(t, db, "select group_concat(name || ': ' || purpose) from _tables_meta")
			}
			before := state()
			run(t, db, 2, sql)
			if state() == before {
				t.Fatal("nothing was changed")
			}
			if strings.Contains(sql, "to costs") {
				if got := system(t, db, "select group_concat(name || ': ' || purpose) from _tables_meta"); got != "costs: What was spent" {
					t.Errorf("after the rename the host knows %s", got)
				}
			}
			if got := system(t, db, "select count(*) = (select count(*) from _tables_meta) from sqlite_schema where type = 'table' and substr(name, 1, 1) <> '_' and name not like 'sqlite%'"); got != "1" {
				t.Error("the host does not know when each table was made")
			}

			if out := undo(t, db, changelog.UndoSpec{Run: 2}); !out.Done || len(out.Schema) == 0 {
				t.Fatalf("%+v", out)
			}
			if got := state(); got != before {
				t.Errorf("it left\n%s\nwant\n%s", got, before)
			}
			if got := system(t, db, "select count(*) from _migrations where slug = 'undo-run-2'"); got != "1" {
				t.Errorf("%s migrations have the undo", got)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "schema.sql")); err != nil || !strings.Contains(string(text), `"expenses"`) || !strings.Contains(string(text), "noted") {
				t.Errorf("the file that describes the schema: %s %v", text, err)
			}

			run(t, db, 3, "insert into expenses(note) values (null)")
			if got := system(t, db, "select group_concat(note) from expenses"); got != "heard" {
				t.Errorf("the trigger made %s of it", got)
			}
		})
	}
}

// OSA-61: a run's rows in a table or column that another undo has removed cannot be undone. The
// result reports that.
func TestUndoOfWhatIsGone(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(t *testing.T, db *agentdb.DB){
		"row by row": func(t *testing.T, db *agentdb.DB) { run(t, db, 3, "insert into t values (1); update u set more = 'x'") },
		"chunks": func(t *testing.T, db *agentdb.DB) {
			for table, row := range map[string]map[string]any{"t": {"a": 1}, "u": {"k": "b", "more": "x"}} {
				if _, err := db.Insert(t.Context(), changelog.By{Run: 3}, table, []map[string]any{row}); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := fresh(t)
			run(t, db, 1, "create table u(k text primary key not null); insert into u values ('a')")
			run(t, db, 2, "create table t(a); alter table u add column more text")
			write(t, db)
			if out := undo(t, db, changelog.UndoSpec{Run: 2, Force: true}); !out.Done {
				t.Fatalf("%+v", out)
			}

			before := contents(t, db)
			out := undo(t, db, changelog.UndoSpec{Run: 3})
			if out.Done || out.ConflictCount != 2 || !strings.Contains(out.Conflicts[0].Why, "its table, or a column of it, was removed later") || out.Conflicts[1].Why[:9] != out.Conflicts[0].Why[:9] {
				t.Errorf("%+v", out)
			}
			if got := contents(t, db); got != before {
				t.Errorf("refused, but changed: %s", got)
			}
		})
	}

	db := fresh(t)
	for _, c := range []struct{ run int64 }{{0}, {-1}} {
		_, err := db.Undo(t.Context(), changelog.By{Actor: "user"}, changelog.UndoSpec{Run: c.run})
		wantError(t, err, "invalid_args", "run", fmt.Sprintf("there is no run %d", c.run))
	}

	expenses(t, db)
	if _, err := db.Views.Save(t.Context(), changelog.By{Run: 2}, view.View{Name: "total", SQL: "select count(*) from expenses", RenderHint: "number", Refresh: "manual"}); err != nil {
		t.Fatal(err)
	}
	if out := undo(t, db, changelog.UndoSpec{Run: 2}); len(out.Remaining) != 1 || !strings.Contains(out.Remaining[0], "the saved view total") {
		t.Errorf("what stays: %q", out.Remaining)
	}
}

// OSA-61: rows of other runs that refer to a row of the run are conflicts, or are deleted by a
// cascade. The changelog then has them.
func TestUndoOfRowsThatOthersPointAt(t *testing.T) {
	t.Parallel()
	for action, refused := range map[string]bool{"": true, "on delete cascade": false} {
		t.Run(action, func(t *testing.T) {
			db := fresh(t)
			run(t, db, 1, "create table parent(k text primary key not null, a); create table child(k text references parent(k) "+action+" deferrable initially deferred)")
			if _, err := db.Insert(t.Context(), changelog.By{Run: 2}, "parent", []map[string]any{{"k": "a"}, {"k": "b"}}); err != nil {
				t.Fatal(err)
			}
			run(t, db, 3, "insert into child values ('a')")

			before := contents(t, db)
			out := undo(t, db, changelog.UndoSpec{Run: 2})
			if out.Done == refused || refused && (out.ConflictCount != 1 || !strings.Contains(out.Conflicts[0].Why, "it points at a row of parent")) {
				t.Fatalf("%+v", out)
			}
			if refused {
				_, err := db.Undo(t.Context(), changelog.By{Actor: "user"}, changelog.UndoSpec{Run: 2, Force: true})
				wantError(t, err, "rejected", "run", "points at a row of parent")
				if got := contents(t, db); got != before {
					t.Errorf("refused, but changed: %s", got)
				}
			}
			if got, want := contents(t, replay(t, db)), contents(t, db); got != want {
				t.Errorf("the changelog gives:\n%s\nnot:\n%s", got, want)
			}
		})
	}
}

// OSA-61: for every kind of table, the entry of a chunk is sufficient to undo and replay it.
func TestChunksAreRecordedWhole(t *testing.T) {
	t.Parallel()
	upsert := func(table string, rows ...map[string]any) func(*testing.T, *agentdb.DB) error {
		return func(t *testing.T, db *agentdb.DB) error {
			_, err := db.Upsert(t.Context(), changelog.By{Run: 2}, table, []string{"k"}, rows)
			return err
		}
	}
	for name, c := range map[string]struct {
		made  string
		write func(*testing.T, *agentdb.DB) error
		later string // SQL of run 3
		kept  bool   // a conflict prevents the undo
	}{
		"a key that has a default": {
			"create table t(k text primary key not null default 'x', a)",
			func(t *testing.T, db *agentdb.DB) error {
				_, err := db.Insert(t.Context(), changelog.By{Run: 2}, "t", []map[string]any{{"a": 1}})
				return err
			}, "", false,
		},
		"a number that JSON has no form for": {
			"create table t(k text primary key not null, a)",
			func(t *testing.T, db *agentdb.DB) error {
				_, err := db.Insert(t.Context(), changelog.By{Run: 2}, "t", []map[string]any{{"k": "a", "a": math.Inf(1)}})
				return err
			}, "update t set a = 1 where k = 'none'", false,
		},
		"a key that can be NULL": {
			"create table t(k text primary key, a); insert into t values (null, 1), (null, 3)",
			func(t *testing.T, db *agentdb.DB) error { run(t, db, 2, "insert into t values (null, 2)"); return nil }, "insert into t values (null, 4)", false,
		},
		"a key of integers that can be NULL, because it descends": {
			"create table t(k integer primary key desc, a); insert into t values (null, 1), (null, 3)",
			func(t *testing.T, db *agentdb.DB) error { run(t, db, 2, "insert into t values (null, 2)"); return nil }, "insert into t values (null, 4)", false,
		},
		"a cascade of an upsert": {
			"create table t(k text primary key not null, c text unique); create table child(c text references t(c) on update cascade); insert into t values ('a', 'old'); insert into child values ('old')",
			upsert("t", map[string]any{"k": "a", "c": "new"}), "", false,
		},
		"a unique value that others have now": {
			"create table t(k text primary key not null, u text unique); insert into t values ('a', 'x'), ('b', 'y')",
			upsert("t", map[string]any{"k": "a", "u": "p"}, map[string]any{"k": "b", "u": "q"}), "insert into t values ('c', 'x')", true,
		},
		"a table that now has the rows' names": {
			"create table t(k text primary key not null, a text)",
			func(t *testing.T, db *agentdb.DB) error {
				_, err := db.Insert(t.Context(), changelog.By{Run: 2}, "t", []map[string]any{{"k": "a", "a": "1"}})
				return err
			}, "alter table t rename to u; create table t(k text primary key not null, a text); insert into t values ('a', '1')", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, without := fresh(t), fresh(t)
			run(t, db, 1, c.made)
			run(t, without, 1, c.made)
			if err := c.write(t, db); err != nil {
				t.Fatal(err)
			}
			if c.later != "" {
				run(t, db, 3, c.later)
			}

			want := contents(t, db)
			if !c.kept {
				if c.later != "" {
					run(t, without, 3, c.later)
				}
				want = contents(t, without)
			}
			if out := undo(t, db, changelog.UndoSpec{Run: 2}); out.Done == c.kept || c.kept && out.ConflictCount != 1 {
				t.Errorf("%+v", out)
			}
			if got, cascade := system(t, db, `select count(*) from _changelog where "table" = 'child' and run_id = 2`), strings.Contains(c.made, "cascade"); cascade && got != "1" {
				t.Errorf("the changelog has %s rows of what the upsert cascaded to", got)
			}
			if got := contents(t, db); got != want {
				t.Errorf("left:\n%s\nwant:\n%s", got, want)
			}
			if again, _ := replayAtOnce(t, db); contents(t, again) != want {
				t.Errorf("the changelog gives:\n%s\nwant:\n%s", contents(t, again), want)
			}
		})
	}
}

// OSA-61: rows written directly after a chunk are not part of it. The chunk is undone as a whole,
// with one entry.
func TestUndoOfAChunkBetweenOthers(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	for run := range int64(3) {
		if _, err := db.Insert(t.Context(), changelog.By{Run: run + 1}, "expenses", []map[string]any{{"amount": 1.5}, {"amount": 1.5}}); err != nil {
			t.Fatal(err)
		}
	}

	undo(t, db, changelog.UndoSpec{Run: 2})
	if got := system(t, db, "select group_concat(id) from expenses"); got != "1,2,5,6" {
		t.Errorf("left are %s", got)
	}
	if got := system(t, db, "select count(*) from _changelog where actor = 'user'"); got != "1" {
		t.Errorf("the changelog has %s entries of it", got)
	}
}

// OSA-61: the timestamp set by the host's trigger is part of the row's entry.
func TestUpdateIsOneEntry(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"amount": 1}, map[string]any{"amount": 2})
	raw(t, db, "drop trigger _touch_expenses", "update expenses set _updated_at = '2026-01-01T00:00:00.000Z'")
	raw(t, db, "create trigger _touch_expenses after update on expenses for each row when new._updated_at is old._updated_at begin update expenses set _updated_at = '2026-01-02T00:00:00.000Z' where rowid = new.rowid; end")

	execute(t, db, "update expenses set amount = amount + 1 where 1")
	if got := system(t, db, "select group_concat(pk || before || after, ' ') from _changelog where op = 'raw' and pk is not null"); got !=
		`{"id":1}{"amount":1.0,"_updated_at":"2026-01-01T00:00:00.000Z"}{"amount":2.0,"_updated_at":"2026-01-02T00:00:00.000Z"} `+
			`{"id":2}{"amount":2.0,"_updated_at":"2026-01-01T00:00:00.000Z"}{"amount":3.0,"_updated_at":"2026-01-02T00:00:00.000Z"}` {
		t.Errorf("the changelog has %s", got)
	}
}
