package agentdb_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/transfer"
)

func undo(t testing.TB, db *agentdb.DB, spec changelog.UndoSpec) changelog.Undone {
	t.Helper()
	out, err := db.Undo(t.Context(), changelog.By{Actor: "user"}, spec)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// OSA-61: undoing any run of a random history gives the result of the other runs alone, or
// changes no data and reports the conflict. With force it always succeeds unless it returns a
// reason. The changelog stays complete.
func TestUndoGivesTheStateWithoutTheRun(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		db, err := agentdb.Open(context.Background(), agentdb.Options{Path: filepath.Join(t.TempDir(), "db.sqlite")})
		if err != nil {
			r.Fatal(err)
		}
		defer db.Close()

		g := &generator{r: r, db: db}
		g.tables()
		for range rapid.IntRange(1, 20).Draw(r, "operations") {
			g.operation()
		}

		g.by = 4 // the last run
		for range rapid.IntRange(0, 5).Draw(r, "last operations") {
			g.operation()
		}

		run := int64(rapid.IntRange(1, 4).Draw(r, "undone"))
		log, before := dump(t, db), contents(t, db)
		want, compare := without(t, db, run)

		tried, err := db.Undo(t.Context(), changelog.By{}, changelog.UndoSpec{Run: run, DryRun: true})
		if got := contents(t, db); got != before {
			r.Fatalf("a trial changed rows:\n%s\n\nwas:\n%s", got, before)
		}

		if err != nil {
			g.accept(unreject(err), "trial")
			return
		}

		if last(t, db, run) && !tried.CanUndo {
			r.Fatalf("nobody came after run %d, and yet: %+v\n%s", run, tried.Conflicts, log)
		}

		out, err := db.Undo(t.Context(), changelog.By{}, changelog.UndoSpec{Run: run})
		if err != nil || out.Done != tried.CanUndo {
			r.Fatalf("can undo %v, and then done %v %v: %+v\n%s", tried.CanUndo, out.Done, err, out.Conflicts, log)
		}

		got := contents(t, db)
		switch {
		case out.Done && compare && got != want:
			r.Fatalf("undone:\n%s\n\nwant:\n%s\n\n%s", got, want, log)
		case !out.Done && got != before:
			r.Fatalf("refused, but changed:\n%s\n\nwas:\n%s", got, before)
		case !out.Done:
			_, err := db.Undo(t.Context(), changelog.By{}, changelog.UndoSpec{Run: run, Force: true})
			g.accept(unreject(err), "force")
		}

		if again := contents(t, replay(t, db)); again != contents(t, db) {
			r.Fatalf("the changelog gives:\n%s\n\nnot:\n%s\n\n%s", again, contents(t, db), dump(t, db))
		}
	})
}

// last reports whether no other run changed any row after the first change of this run.
func last(t testing.TB, db *agentdb.DB, run int64) bool {
	all := changes(t, db)
	first := slices.IndexFunc(all, func(c changelog.Change) bool { return c.Run == run })
	return first < 0 || !slices.ContainsFunc(all[first:], func(c changelog.Change) bool { return c.Run != run })
}

// unreject ignores a rejection that has a reason.
func unreject(err error) error {
	if err != nil && strings.Contains(err.Error(), "cannot be undone") {
		return nil
	}
	return err
}

// without returns the result of the other runs alone. It returns false if they cannot be replayed
// without the run.
func without(t testing.TB, db *agentdb.DB, run int64) (string, bool) {
	t.Helper()
	again := fresh(t)
	var steps []changelog.Step
	for _, c := range changes(t, db) {
		if c.Run == run {
			continue
		}

		s, err := c.Steps()
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, s...)
	}
	if _, err := again.Apply(t.Context(), changelog.By{Actor: "user"}, steps); err != nil {
		return "", false
	}

	return contents(t, again), true
}

// OSA-61: undo removes a run's import and the table it created. It also deletes the run's calls
// from the journal, so that another attempt imports again.
func TestUndoOfAnImport(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	var b strings.Builder
	b.WriteString("name,amount,code\n")
	for i := range 1500 {
		fmt.Fprintf(&b, "n%d,%d.5,00%d\n", i, i, i)
	}

	load := func() transfer.Imported {
		out, err := db.Import(t.Context(), changelog.By{Run: 7, Key: "1"}, transfer.ImportSpec{Table: "bank", Name: "bank.csv", Source: strings.NewReader(b.String())})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	load()
	out := undo(t, db, changelog.UndoSpec{Run: 7})
	if !out.Done || len(out.Tables) != 1 || out.Tables[0].Removed != 1500 || len(out.Schema) != 1 {
		t.Fatalf("%+v", out)
	}
	if got := contents(t, db); got != "" {
		t.Errorf("after the undo: %.200s", got)
	}
	if got := system(t, db, "select count(*) from _changelog where actor = 'user' and op = 'raw'"); got != "2" {
		t.Errorf("the changelog has %s rows for what was removed, want one for each chunk", got)
	}

	if again := undo(t, db, changelog.UndoSpec{Run: 7}); again.Changes != 0 || !again.Done {
		t.Errorf("a second undo: %+v", again)
	}
	if n := load().RowsImported; n != 1500 {
		t.Errorf("another attempt imported %d rows", n)
	}
	if again := undo(t, db, changelog.UndoSpec{Run: 7}); again.Tables[0].Removed != 1500 {
		t.Errorf("the undo of the later attempt: %+v", again)
	}

	want := contents(t, db)
	if got := contents(t, replay(t, db)); got != want {
		t.Errorf("the changelog gives %.300s", got)
	}
}

// OSA-61: later changes by others are reported as conflicts and are undone only with force.
func TestUndoConflicts(t *testing.T) {
	t.Parallel()
	row := map[string]any{"category": "food", "amount": 1}
	for name, test := range map[string]struct {
		later func(t *testing.T, db *agentdb.DB)
		why   string
		lost  string // content of the table after a forced undo
	}{
		"changed": {func(t *testing.T, db *agentdb.DB) {
			if _, err := db.Update(t.Context(), changelog.By{Run: 8}, "expenses", map[string]any{"note": "mine"}, map[string]any{"id": 2}, false); err != nil {
				t.Fatal(err)
			}
		}, "it was changed later (by run 8, ", "0"},
		"gone": {func(t *testing.T, db *agentdb.DB) { raw(t, db, "delete from expenses where id = 2") }, "it is gone", "0"},
		"a column that came later": {func(t *testing.T, db *agentdb.DB) {
			if _, err := db.Execute(t.Context(), changelog.By{Run: 8}, agentdb.ExecuteSpec{SQL: "alter table expenses add column extra text default 'x'; update expenses set extra = 'kept' where id = 2"}); err != nil {
				t.Fatal(err)
			}
		}, "it was changed later", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			db := fresh(t)
			expenses(t, db)
			if _, err := db.Insert(t.Context(), changelog.By{Run: 7}, "expenses", []map[string]any{row, row, row}); err != nil {
				t.Fatal(err)
			}

			test.later(t, db)
			before := contents(t, db)
			out := undo(t, db, changelog.UndoSpec{Run: 7})
			if out.Done || out.CanUndo || out.ConflictCount != 1 || !strings.Contains(out.Conflicts[0].Why, test.why) || out.Conflicts[0].Key != `{"id":2}` {
				t.Fatalf("%+v", out)
			}
			if got := contents(t, db); got != before {
				t.Fatalf("refused, but changed: %s", got)
			}
			if out := undo(t, db, changelog.UndoSpec{Run: 7, Force: true}); !out.Done || out.CanUndo {
				t.Fatalf("with force: %+v", out)
			}

			if got := system(t, db, "select count(*) from expenses"); got != test.lost {
				t.Errorf("force left %s rows", got)
			}
		})
	}
}

// OSA-61: undo finds rows by the current names of their table and columns. A row that only
// resembles one of the run's under an old name is unchanged.
func TestUndoAfterARename(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]string{
		"a key":              "alter table t rename column k to code",
		"a column":           "alter table t rename column a to b",
		"names that swapped": "alter table t rename column k to code; alter table t rename column a to k",
		"there and back":     "alter table t rename column a to b; alter table t rename column b to a",
		"the table":          "alter table t rename to u; alter table u rename column k to t",
		"a table like it":    "alter table t rename to u; create table t(k, a); insert into t values ('k', 2)",
	} {
		t.Run(name, func(t *testing.T) {
			db := fresh(t)
			execute := func(run int64, sql string) {
				t.Helper()
				if _, err := db.Execute(t.Context(), changelog.By{Run: run}, agentdb.ExecuteSpec{SQL: sql}); err != nil {
					t.Fatal(err)
				}
			}

			execute(1, "create table t(k text primary key not null, a text); insert into t values ('other', 'k')")
			execute(3, test)
			want := contents(t, db)

			db = fresh(t)
			execute(1, "create table t(k text primary key not null, a text); insert into t values ('other', 'k')")
			execute(2, "insert into t values ('k', '2')") // a key equal to the name of its column
			execute(3, test)
			if out := undo(t, db, changelog.UndoSpec{Run: 2}); !out.Done {
				t.Fatalf("%+v", out)
			}
			if got := contents(t, db); got != want {
				t.Errorf("left:\n%s\nwant:\n%s", got, want)
			}
			if got := contents(t, replay(t, db)); got != want {
				t.Errorf("the changelog gives:\n%s", got)
			}
		})
	}
}

// OSA-61: undoing a column rename keeps later values by others. The changelog, which now has
// values under both names, replays. A value for a missing column is an error.
func TestUndoOfARename(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	execute := func(run int64, sql string) {
		t.Helper()
		if _, err := db.Execute(t.Context(), changelog.By{Run: run}, agentdb.ExecuteSpec{SQL: sql}); err != nil {
			t.Fatal(err)
		}
	}

	execute(1, "create table audit(what text, at integer)")
	execute(2, "alter table audit rename column what to what1")
	execute(3, "insert into audit values ('seen', 3)")
	if _, compare := without(t, db, 2); compare {
		t.Error("a row of a column that is not there was played without it")
	}
	if out := undo(t, db, changelog.UndoSpec{Run: 2}); !out.Done {
		t.Fatalf("%+v", out)
	}
	if got := system(t, db, "select group_concat(what || at) from audit"); got != "seen3" {
		t.Errorf("the table has %s", got)
	}

	if got, want := contents(t, replay(t, db)), contents(t, db); got != want {
		t.Errorf("the changelog gives %s, want %s", got, want)
	}
}

// OSA-61: a later row with the same unique value is kept, even if the table was created with ON
// CONFLICT REPLACE.
func TestUndoReplacesNoRow(t *testing.T) {
	db := fresh(t)
	for run, text := range []string{
		1: "create table swap(id integer primary key, k text unique on conflict replace); insert into swap values (1, 'a')",
		2: "update swap set k = 'b'",
		3: "insert into swap values (4, 'a')",
	} {
		if text == "" {
			continue
		}
		if _, err := db.Execute(t.Context(), changelog.By{Run: int64(run)}, agentdb.ExecuteSpec{SQL: text}); err != nil {
			t.Fatal(err)
		}
	}

	out := undo(t, db, changelog.UndoSpec{Run: 2})
	if got := system(t, db, "select group_concat(id || k) from swap"); out.Done || got != "1b,4a" {
		t.Fatalf("%+v, and the table has %s", out, got)
	}

	out = undo(t, db, changelog.UndoSpec{Run: 2, Force: true})
	if got := system(t, db, "select group_concat(id || k) from swap"); !out.Done || got != "1a" {
		t.Fatalf("with force: %+v, and the table has %s", out, got)
	}
}

// OSA-61: rows of a chunk in a table without the host's columns are identified one by one.
func TestUndoOfAChunkWithoutHostColumns(t *testing.T) {
	db := fresh(t)
	if _, err := db.Execute(t.Context(), changelog.By{Run: 1}, agentdb.ExecuteSpec{SQL: "create table t(k text primary key not null, a); insert into t values ('b', 0)"}); err != nil {
		t.Fatal(err)
	}

	rows := []map[string]any{{"k": "a", "a": 1}, {"k": "b", "a": 2}}
	if _, err := db.Upsert(t.Context(), changelog.By{Run: 2}, "t", []string{"k"}, rows); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Insert(t.Context(), changelog.By{Run: 2}, "t", []map[string]any{{"k": "c", "a": 1}, {"k": "d", "a": 1}}); err != nil {
		t.Fatal(err)
	}
	if out := undo(t, db, changelog.UndoSpec{Run: 2}); !out.Done {
		t.Fatalf("%+v", out)
	}

	if got := system(t, db, "select group_concat(k || a) from t"); got != "b0" {
		t.Errorf("the table has %s", got)
	}
}

// OSA-61: a table that the run created is kept while it has rows of others.
func TestUndoKeepsATableOfOthers(t *testing.T) {
	db := fresh(t)
	expenses(t, db) // as run 1
	if _, err := db.Insert(t.Context(), changelog.By{Run: 2}, "expenses", []map[string]any{{"category": "x"}}); err != nil {
		t.Fatal(err)
	}

	out := undo(t, db, changelog.UndoSpec{Run: 1})
	if out.Done || !strings.Contains(fmt.Sprint(out.Conflicts), "holds 1 rows that came from elsewhere") {
		t.Fatalf("%+v", out)
	}
	if out := undo(t, db, changelog.UndoSpec{Run: 1, Force: true}); !out.Done {
		t.Fatalf("%+v", out)
	}
	if got := contents(t, replay(t, db)); got != "" || contents(t, db) != "" {
		t.Errorf("replayed: %s", got)
	}
}
