package agentdb_test

import (
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/view"
)

// OSA-60: queries, CTEs, other views and exports can use a saved view like a table. It shows live
// rows, uses its parameters' defaults, and never takes a parameter of the query.
func TestSavedViewsAsTables(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"category": "food", "amount": 1.5}, map[string]any{"category": "food", "amount": 2.5}, map[string]any{"category": "it's :a", "amount": 7})
	define := func(name, sql string, params ...view.Param) {
		t.Helper()
		if _, err := db.Views.Save(t.Context(), changelog.By{}, view.View{Name: name, SQL: sql, RenderHint: "table", Refresh: "manual", Params: params}); err != nil {
			t.Fatal(name, err)
		}
	}

	define("totals", "select category, sum(amount) total from expenses where _deleted_at is null group by 1; -- by category")
	define("large", "WITH recursive t as (select * from Totals) select *, ':least' note from t where total >= :least and total < :most",
		view.Param{Name: "least", Type: "real", Default: 5.0}, view.Param{Name: "most", Type: "integer", Default: 100})
	define("odd", "select category from large where category = :a", view.Param{Name: "a", Default: "it's :a"})
	define("one", "select total from totals where category = :which", view.Param{Name: "which"})

	for sql, want := range map[string]string{
		"select * from totals order by 1": `[["food",4],["it's :a",7]]`,
		"select e.amount, t.total from expenses e join TOTALS t on t.category = e.category where e.amount < :least": `[[1.5,4]]`,
		"with recursive big as (select * from large) select count(*), max(note) from big":                           `[[1,":least"]]`,
		"with big as (select * from odd) select * from big":                                                         `[["it's :a"]]`,
		"select category from totals union all select category from odd order by 1":                                 `[["food"],["it's :a"],["it's :a"]]`,
		"select (select count(*) from large) n":                                                                     `[[1]]`,
	} {
		got, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql, Named: map[string]any{"least": 2}, AllowExtra: true})
		if err != nil || flat(t, got) != want {
			t.Errorf("%s: %s %v, want %s", sql, flat(t, got), err, want)
		}
	}

	// A deleted row is not visible through the view either.
	if _, err := db.Delete(t.Context(), changelog.By{}, "expenses", map[string]any{"amount": 7}); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, db, "select count(*) from totals"); got != "[[1]]" {
		t.Errorf("behind a deletion: %s", got)
	}

	var file strings.Builder
	if out, err := db.Export(t.Context(), agentdb.ExportSpec{SQL: "select * from totals", Format: "csv"}, &file); err != nil || file.String() != "category,total\nfood,4.0\n" || out.RowsExported != 1 {
		t.Errorf("exported %q %+v %v", file.String(), out, err)
	}

	for sql, part := range map[string]string{
		"select * from one":         "the view one needs a value for which, and is asked with db_run_view",
		"select * from total":       "no such table: total; did you mean totals?",
		"select x from totals":      "no such column: x",
		"select * from _calls":      "only reads the agent's own tables",
		"select * from main.totals": "no such table: main.totals; it is a saved view",
	} {
		if _, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql}); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %s", sql, err, part)
		}
	}

	// A view that refers to itself is rejected.
	for _, sql := range []string{"select * from totals", "select category, total from odd join large using (category)"} {
		_, err := db.Views.Save(t.Context(), changelog.By{}, view.View{Name: "totals", SQL: sql, RenderHint: "table", Refresh: "manual"})
		wantError(t, err, "invalid_args", "sql", "would ask itself")
	}
	if got := ask(t, db, "select category from totals"); got != `[["food"]]` {
		t.Errorf("behind what was refused: %s", got)
	}
}
