package agentdb_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/schema"
	"rouse/agentdb/view"
	"rouse/internal/contract"
)

// OSA-63: at most 8,000 characters. Columns are omitted first, then the oldest tables. The text
// has no row data.
func TestSchemaString(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	schema := func() string {
		t.Helper()
		s, err := db.Schema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.String()
	}
	if got := schema(); got != "The database has no tables yet.\n" {
		t.Error(got)
	}

	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"category": "secret-value"})
	if got := schema(); got != "expenses (1 rows): What was spent\n  id INTEGER primary key\n  category TEXT\n  amount REAL\n  note TEXT\n" {
		t.Error(got)
	}

	for i := range 4 {
		wide(t, db, fmt.Sprint("table_", i), 60)
	}

	got := schema()
	if !strings.Contains(got, "column_59") || utf8.RuneCountInString(got) > 8000 {
		t.Error(got)
	}

	for i := range 4 {
		wide(t, db, fmt.Sprint("more_", i), 60)
	}

	if got = schema(); !strings.Contains(got, "… and 51 more columns") || !strings.Contains(got, "expenses") || utf8.RuneCountInString(got) > 8000 {
		t.Error(got)
	}

	for i := range 30 {
		wide(t, db, fmt.Sprint("last_", i), 12)
	}

	got = schema()
	if strings.Contains(got, "expenses (") || !strings.Contains(got, "last_29 (") || !strings.Contains(got, "older tables are left out") || utf8.RuneCountInString(got) > 8000 {
		t.Error(got)
	}
}

// OSA-63: the SQL of views is omitted before any column, and their names are kept.
func TestSchemaStringShrinks(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-63")
	most, more := row.Number("8,000"), fmt.Sprintf("… and %d more columns", 61-row.Number("10"))
	db := fresh(t)
	text := func() string {
		t.Helper()
		s, err := db.Schema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := utf8.RuneCountInString(s.String()); n > most {
			t.Errorf("%d characters", n)
		}
		return s.String()
	}

	expenses(t, db)
	raw(t, db, "create view dear as select id from expenses where amount > 100")
	v := view.View{Name: "over", SQL: "select category\nfrom expenses where amount > :least", RenderHint: "table", Refresh: "manual", Params: []view.Param{{Name: "least", Type: "real"}}}
	if _, err := db.Views.Save(t.Context(), changelog.By{Run: 1}, v); err != nil {
		t.Fatal(err)
	}

	const table = "expenses (0 rows): What was spent\n  id INTEGER primary key\n  category TEXT\n  amount REAL\n  note TEXT\n"
	const views = `view dear:
  CREATE VIEW dear as select id from expenses where amount > 100
view over(least) (saved):
  select category
    from expenses where amount > :least
`
	if got := text(); got != table+strings.Replace(views, "    from", "  from", 1) {
		t.Errorf("all of it:\n%s", got)
	}

	for i := range 20 {
		v := view.View{Name: fmt.Sprint("long_", i), SQL: "select 1 -- " + strings.Repeat("x", 500), RenderHint: "table", Refresh: "manual"}
		if _, err := db.Views.Save(t.Context(), changelog.By{Run: 1}, v); err != nil {
			t.Fatal(err)
		}
	}

	got := text()
	if !strings.HasPrefix(got, table+"views, whose SQL db_schema has: dear, long_0 (saved), ") || !strings.HasSuffix(got, "over(least) (saved)\n") || strings.Contains(got, "select") {
		t.Errorf("without the SQL of views:\n%s", got)
	}

	for i := range 8 {
		wide(t, db, fmt.Sprint("wide_", i), 60)
	}

	if got = text(); !strings.Contains(got, more) || !strings.Contains(got, "expenses (") || !strings.Contains(got, "over(least)") {
		t.Errorf("with ten columns:\n%s", got)
	}

	for i := range 30 {
		wide(t, db, fmt.Sprint("last_", i), 12)
	}

	if got = text(); strings.Contains(got, "expenses (") || !strings.Contains(got, "last_29 (") || !strings.Contains(got, "over(least)") {
		t.Errorf("without the oldest:\n%s", got)
	}

	// The SQL of views is omitted even if fewer columns would be sufficient.
	db = fresh(t)
	wide(t, db, "wide", 60)
	for i := range 14 {
		v := view.View{Name: fmt.Sprint("long_", i), SQL: "select 1 -- " + strings.Repeat("x", 500), RenderHint: "table", Refresh: "manual"}
		if _, err := db.Views.Save(t.Context(), changelog.By{Run: 1}, v); err != nil {
			t.Fatal(err)
		}
	}
	if got = text(); !strings.Contains(got, "column_59") || strings.Contains(got, "select") || !strings.Contains(got, "long_13 (saved)") {
		t.Errorf("with one wide table:\n%s", got)
	}
}

// OSA-63: a text of exactly the limit is unchanged. One character less omits the next part: the
// SQL of views, columns after the tenth, the oldest tables. View names use at most a quarter of
// the limit.
func TestSchemaTextFits(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	wide(t, db, "old", 12)
	wide(t, db, "young", 12)
	if _, err := db.CreateTable(t.Context(), changelog.By{}, schema.TableSpec{Name: "strict", Purpose: "Strict", Columns: []schema.Column{{Name: "a", Type: "TEXT", Nullable: new(false)}, {Name: "b", Type: "TEXT", Nullable: new(true)}}}); err != nil {
		t.Fatal(err)
	}
	schema := func() schema.Schema {
		t.Helper()
		s, err := db.Schema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	size := func(text string) int { return utf8.RuneCountInString(text) }

	s := schema()
	whole := s.Text(1 << 20)
	if !strings.Contains(whole, "  a TEXT not null\n  b TEXT\n") || s.Text(size(whole)) != whole {
		t.Errorf("whole:\n%s", whole)
	}
	ten := s.Text(size(whole) - 1)
	if !strings.Contains(ten, "… and 3 more columns") || strings.Contains(ten, "view") || s.Text(size(ten)) != ten {
		t.Errorf("ten columns:\n%s", ten)
	}
	two := s.Text(size(ten) - 1)
	if strings.Contains(two, "old (") || !strings.Contains(two, "young (") || !strings.Contains(two, "1 older tables are left out") || s.Text(size(two)) != two {
		t.Errorf("without the oldest:\n%s", two)
	}

	for i := range 40 {
		raw(t, db, fmt.Sprintf("create view view_of_some_length_%02d as select a from strict", i))
	}
	named := schema().Text(1200)
	_, names, _ := strings.Cut(named, "views, whose SQL db_schema has: ")
	if n := size(strings.TrimSpace(names)); n < 280 || n > 300 || size(named) > 1200 {
		t.Errorf("%d characters of names of views in %d:\n%s", n, size(named), named)
	}
}

func wide(t *testing.T, db *agentdb.DB, name string, columns int) {
	t.Helper()
	spec := schema.TableSpec{Name: name, Purpose: "Wide"}
	for i := range columns {
		spec.Columns = append(spec.Columns, schema.Column{Name: fmt.Sprint("column_", i), Type: "TEXT"})
	}
	if _, err := db.CreateTable(t.Context(), changelog.By{}, spec); err != nil {
		t.Fatal(err)
	}
}
