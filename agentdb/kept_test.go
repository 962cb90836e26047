package agentdb_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/view"
)

// twin is one of two databases that receive the same steps.
type twin struct {
	path   string
	db     *agentdb.DB
	other  *sql.DB // connection of another process
	forget bool    // drop all caches between steps
}

func newTwin(t *testing.T, forget bool) *twin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db.sqlite")
	w := &twin{path: path, db: open(t, path), forget: forget}

	var err error
	if w.other, err = sql.Open("sqlite", path+"?_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.other.Close() })
	return w
}

var instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// do returns the result of a step, without timestamps, or the text of its error.
func (w *twin) do(t *testing.T, step func(*twin) (any, error)) string {
	t.Helper()
	if w.forget {
		if err := agentdb.Forget(w.db); err != nil {
			t.Fatal(err)
		}
	}

	out, err := step(w)
	var bad *dberr.Error
	switch {
	case errors.As(err, &bad):
		return "refused: " + bad.Kind + ": " + bad.Text()
	case err != nil:
		return "failed: " + strings.ReplaceAll(err.Error(), w.path, "the file")
	}

	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return instants.ReplaceAllString(string(text), "now")
}

// Cached schemas, tables and compiled queries never change a result or an error, even if rouse or
// another process changes the database in between. Each step also runs on a twin without caches.
// ROUSE_TEST_STEPS is the number of steps.
func TestKeptAnswers(t *testing.T) {
	t.Parallel()
	steps := 120
	if n, err := strconv.Atoi(os.Getenv("ROUSE_TEST_STEPS")); err == nil {
		steps = n
	}

	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	keeps, forgets := newTwin(t, false), newTwin(t, true)
	answered, refused := 0, 0
	for n := range steps {
		name, step := randomStep(r, n)
		got, want := keeps.do(t, step), forgets.do(t, step)
		if got != want {
			t.Fatalf("step %d, %s:\n%s\nand without anything kept\n%s", n, name, got, want)
		}

		if strings.HasPrefix(got, "refused") {
			refused++
		} else {
			answered++
		}
	}

	// Without both outcomes, the comparison would prove little.
	if answered < steps/10 || refused < steps/20 {
		t.Errorf("%d steps were answered and %d refused", answered, refused)
	}

	log := func(w *twin) (any, error) {
		changes, err := w.db.Changes(t.Context(), changelog.Filter{})
		return changes, err
	}
	if got, want := keeps.do(t, log), forgets.do(t, log); got != want {
		t.Errorf("the changelog is\n%s\nand without anything kept\n%s", got, want)
	}
}

// randomStep returns a change or, more often, a query.
func randomStep(r *rand.Rand, n int) (name string, step func(*twin) (any, error)) {
	ctx := context.Background()
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	table, column := pick("a", "b"), pick("x", "y", "z")
	by := changelog.By{Run: 1}
	switch r.IntN(10) {
	case 0, 1: // the schema, sometimes rolled back; by the agent or another process
		text := pick(
			"create table "+table+"(x integer, y text)",
			"create table "+table+"(id integer primary key, z text default 'none', _created_at text, _updated_at text, _deleted_at text)",
			"alter table "+table+" add column "+column,
			"alter table "+table+" rename column "+column+" to w"+strconv.Itoa(n),
			"alter table "+table+" rename to c"+strconv.Itoa(n),
			"create view v as select * from "+table,
			"create view "+table+" as select 1 as x",
			"drop view v", "drop view "+table,
			"create trigger "+table+"_t after insert on "+table+" begin update "+table+" set x = 7; end",
			"drop trigger "+table+"_t",
			"create table "+table+"(x, y); insert into nowhere values (1)",
			"create index "+table+"_i on "+table+"("+column+")",
		)
		if r.IntN(2) == 0 {
			return "beside it: " + text, func(w *twin) (any, error) { return nil, w.beside(ctx, text) }
		}
		return text, func(w *twin) (any, error) { return w.db.Execute(ctx, by, agentdb.ExecuteSpec{SQL: text}) }
	case 2: // rows, by another process
		text := pick("insert into "+table+"("+column+") values ("+strconv.Itoa(n)+")", "delete from "+table+" where x = 7", "update "+table+" set _deleted_at = 'now'", "drop table "+table)
		return "beside it: " + text, func(w *twin) (any, error) { return nil, w.beside(ctx, text) }
	case 3, 4:
		rows := []map[string]any{{column: n}, {column: "text"}}
		if r.IntN(3) == 0 {
			return "upsert into " + table, func(w *twin) (any, error) { return w.db.Upsert(ctx, by, table, []string{column}, rows) }
		}
		return "insert into " + table, func(w *twin) (any, error) { return w.db.Insert(ctx, by, table, rows) }
	case 5: // a saved view, which does not change the schema version
		if r.IntN(3) == 0 {
			return "drop the saved view", func(w *twin) (any, error) { return w.db.Views.Drop(ctx, by, "saved") }
		}
		view := view.View{Name: "saved", SQL: "select " + column + " from " + table, RenderHint: "table", Refresh: "manual"}
		return "save a view", func(w *twin) (any, error) { return w.db.Views.Save(ctx, by, view) }
	}

	spec := agentdb.QuerySpec{IncludeDeleted: r.IntN(4) == 0, Limit: r.IntN(3), Offset: r.IntN(2)}
	spec.SQL = pick(
		"select * from "+table, "select * from "+table+" where x = ?", "select "+column+", "+column+" from "+table, "select count(*) from "+table,
		"select * from v", "select * from saved", "select * from a join saved", "select name, sql from sqlite_master where name not like '\\_%' escape '\\'",
		"select * from _calls", "select * from "+table+"; select 1", "delete from "+table, "pragma table_info("+table+")", "select json_each.value from json_each('[1,2]')",
		"select load_extension('x')", "with q as (select * from "+table+") select * from q order by 1", "select x'00ff', 1.5, null, 'äé<&>', "+column+" from "+table,
	)
	if strings.Contains(spec.SQL, "?") {
		spec.Params = []any{r.IntN(8)}
	}
	return spec.SQL, func(w *twin) (any, error) { return w.db.Query(ctx, spec) }
}

// beside changes the file like another process.
func (w *twin) beside(ctx context.Context, text string) error {
	_, err := w.other.ExecContext(ctx, text)
	return err
}
