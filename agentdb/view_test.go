package agentdb_test

import (
	"fmt"
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/schema"
	"rouse/agentdb/view"
)

// OSA-60: a saved query keeps its result until its next run. Redefining it keeps its creation
// time. Only SELECTs are accepted, under a name that no table has.
func TestViews(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	by := changelog.By{Run: 1}
	v := view.View{Name: "total", SQL: "select count(*) n from expenses", RenderHint: "number", Refresh: "on_run"}
	first, err := db.Views.Save(t.Context(), by, v)
	if err != nil {
		t.Fatal(err)
	}

	show := func(want string) {
		t.Helper()
		got, err := db.Views.Show(t.Context(), "TOTAL")
		if err != nil || len(got.Rows.Rows) != 1 || got.RefreshedAt == "" {
			t.Fatalf("%+v %v", got, err)
		}
		if n := fmt.Sprint(got.Rows.Rows[0]["n"]); n != want {
			t.Errorf("the view shows %s, want %s", n, want)
		}
	}

	show("0")
	insert(t, db, "expenses", map[string]any{"category": "x"})
	show("0")
	if err := db.Views.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}

	show("1")
	v.Refresh = "5m"
	if again, err := db.Views.Save(t.Context(), by, v); err != nil || again.CreatedAt != first.CreatedAt || again.Refresh != "5m" {
		t.Errorf("%+v %v", again, err)
	}

	for _, bad := range []view.View{
		{Name: "expenses", SQL: "select 1", RenderHint: "table", Refresh: "manual"},
		{Name: "_x", SQL: "select 1", RenderHint: "table", Refresh: "manual"},
		{Name: "x", SQL: "delete from expenses", RenderHint: "table", Refresh: "manual"},
		{Name: "x", SQL: "select 1", RenderHint: "cake", Refresh: "manual"},
		{Name: "x", SQL: "select 1", RenderHint: "pie", Refresh: "sometimes"},
		{Name: "x", SQL: "select 1", RenderHint: "pie", Refresh: "999ms"},
		{Name: "x", SQL: "select 1" + strings.Repeat(" ", 16<<10-7), RenderHint: "pie", Refresh: "1s"},
	} {
		if _, err := db.Views.Save(t.Context(), by, bad); err == nil {
			t.Errorf("%+v was saved", bad)
		}
	}
	longest := view.View{Name: "longest", SQL: "select 1" + strings.Repeat(" ", 16<<10-8), RenderHint: "number", Refresh: "1s"}
	if _, err := db.Views.Save(t.Context(), by, longest); err != nil {
		t.Error(err)
	}

	if _, err := db.CreateTable(t.Context(), by, schema.TableSpec{Name: "total", Purpose: "p", Columns: []schema.Column{{Name: "a", Type: "TEXT"}}}); err == nil {
		t.Error("a table took the name of a view")
	}

	for _, sql := range []string{"create table Total(a)", "create view total as select 1", "create table more(a); alter table more rename to total"} {
		_, err := db.Execute(t.Context(), by, agentdb.ExecuteSpec{SQL: sql})
		wantError(t, err, "invalid_args", "name", "saved view named")
	}

	execute(t, db, "create index total on expenses(category); drop index total") // queries do not read from an index

	if out, err := db.Views.Drop(t.Context(), by, "total"); err != nil || !out.Dropped {
		t.Errorf("%+v %v", out, err)
	}
	if _, err := db.Views.Run(t.Context(), "total", nil); err == nil {
		t.Error("a dropped view answered")
	}
}
