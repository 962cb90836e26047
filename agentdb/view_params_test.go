package agentdb_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/view"
)

// OSA-60: a view has the parameters of its SQL, each with a type and an optional default.
// Mismatches are rejected with their names.
func TestViewParameters(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"category": "food", "amount": 5}, map[string]any{"category": "rent", "amount": 900})
	by := changelog.By{Run: 1}
	v := view.View{Name: "over", SQL: "select category c from expenses where amount > :least and category like $like order by 1", RenderHint: "table", Refresh: "on_run",
		Params: []view.Param{{Name: ":least", Type: "Integer", Default: json.Number("1")}, {Name: "like", Default: "%"}}}
	saved, err := db.Views.Save(t.Context(), by, v)
	if err != nil || fmt.Sprint(saved.Params) != "[{least integer 1} {like text %}]" {
		t.Fatalf("%+v %v", saved, err)
	}

	for name, test := range map[string]struct {
		given map[string]any
		want  string // the categories, or part of the error
	}{
		"defaults":       {nil, "food rent"},
		"a number":       {map[string]any{"least": json.Number("100")}, "rent"},
		"a text for it":  {map[string]any{"least": "100"}, "rent"},
		"both":           {map[string]any{"least": 1, "like": "f%"}, "food"},
		"null":           {map[string]any{"like": nil}, ""},
		"not a number":   {map[string]any{"least": "much"}, `the parameter least is of type integer, and "much" is not`},
		"a half":         {map[string]any{"least": 1.5}, "is of type integer"},
		"surplus":        {map[string]any{"most": 1, "a": 1}, "the view over has no parameter a, most; it has least (integer), like (text)"},
		"another prefix": {map[string]any{":least": 1}, "has no parameter :least"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := db.Views.Run(t.Context(), "over", test.given)
			var got []string
			for _, row := range out.Rows.Rows {
				got = append(got, row["c"].(string))
			}
			if err == nil && strings.Join(got, " ") != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v %v, want %s", got, err, test.want)
			}
		})
	}

	if out, err := db.Views.Show(t.Context(), "over"); err != nil || len(out.Rows.Rows) != 2 {
		t.Errorf("the stored answer is not that of the defaults: %+v %v", out, err)
	}
}

func TestViewParametersRefuses(t *testing.T) {
	db := fresh(t)
	for want, v := range map[string]view.View{
		"the SQL uses :a, which params does not declare":    {SQL: "select :a"},
		"the SQL has no parameter :b":                       {SQL: "select 1", Params: []view.Param{{Name: "b"}}},
		"the parameter a is declared twice":                 {SQL: "select :a", Params: []view.Param{{Name: "a"}, {Name: "a"}}},
		"must be text, integer or real":                     {SQL: "select :a", Params: []view.Param{{Name: "a", Type: "date"}}},
		`is of type real, and "x" is not`:                   {SQL: "select :a", Params: []view.Param{{Name: "a", Type: "real", Default: "x"}}},
		"write :name and declare it in params":              {SQL: "select ?"},
		"needs a default for every parameter, and a has no": {SQL: "select :a", Refresh: "5m", Params: []view.Param{{Name: "a"}}},
	} {
		v.Name, v.RenderHint = "v", "table"
		if v.Refresh == "" {
			v.Refresh = "manual"
		}

		want = strings.TrimSuffix(want, " no")
		if _, err := db.Views.Save(t.Context(), changelog.By{Run: 1}, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", v.SQL, err, want)
		}
	}

	v := view.View{Name: "v", SQL: "select :a || :b x", RenderHint: "table", Refresh: "manual", Params: []view.Param{{Name: "a"}, {Name: "b"}}}
	if _, err := db.Views.Save(t.Context(), changelog.By{Run: 1}, v); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Views.Run(t.Context(), "v", nil); err == nil || !strings.Contains(err.Error(), "the view v needs a value for a, b") {
		t.Error(err)
	}
}

// A view has at most twenty parameters. Values are converted to the parameter's type or rejected.
func TestViewParameterTypes(t *testing.T) {
	db := fresh(t)
	define := func(v view.View) error {
		v.RenderHint, v.Refresh = "table", "manual"
		_, err := db.Views.Save(t.Context(), changelog.By{Run: 1}, v)
		return err
	}
	many := view.View{Name: "many", SQL: "select 1"}
	for i := range 20 {
		many.SQL, many.Params = fmt.Sprintf("%s + :p%d", many.SQL, i), append(many.Params, view.Param{Name: fmt.Sprint("p", i)})
	}
	if err := define(many); err != nil {
		t.Errorf("twenty: %v", err)
	}
	many.SQL, many.Params = many.SQL+" + :p20", append(many.Params, view.Param{Name: "p20"})
	if err := define(many); err == nil || !strings.Contains(err.Error(), "a view can have 20 parameters") {
		t.Errorf("twenty-one: %v", err)
	}

	for i, c := range []struct {
		typ   string
		value any
		want  string // SQLite's result; "" if rejected
	}{
		{"text", "1", `["text","1"]`}, {"text", 1, `["text","1"]`}, {"text", 1.5, `["text","1.5"]`},
		{"integer", 1, `["integer",1]`}, {"integer", "1", `["integer",1]`}, {"integer", 1.5, ""}, {"integer", "1.5", ""}, {"integer", "x", ""},
		{"real", 1, `["real",1]`}, {"real", 1.5, `["real",1.5]`}, {"real", "1.5", `["real",1.5]`}, {"real", "2", `["real",2]`}, {"real", "x", ""},
		{"real", nil, `["null",null]`},
	} {
		name := fmt.Sprint("v", i)
		if err := define(view.View{Name: name, SQL: "select typeof(:a), :a", Params: []view.Param{{Name: "a", Type: c.typ}}}); err != nil {
			t.Fatal(err)
		}
		out, err := db.Views.Run(t.Context(), name, map[string]any{"a": c.value})
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "is of type "+c.typ) {
				t.Errorf("%v as %s: %v", c.value, c.typ, err)
			}
			continue
		}
		if err != nil || flat(t, out.Rows) != "["+c.want+"]" {
			t.Errorf("%v as %s: %s (%v), want %s", c.value, c.typ, flat(t, out.Rows), err, c.want)
		}
	}

	half := view.View{Name: "half", SQL: "select 7 / :a", Params: []view.Param{{Name: "a", Type: "real", Default: 2}}}
	if err := define(half); err != nil {
		t.Fatal(err)
	}
	if out, err := db.Views.Run(t.Context(), "half", nil); err != nil || flat(t, out.Rows) != "[[3.5]]" {
		t.Errorf("a default that is whole: %s (%v)", flat(t, out.Rows), err)
	}
	if rows, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select * from half"}); err != nil || flat(t, rows) != "[[3.5]]" {
		t.Errorf("asked for in a query: %s (%v)", flat(t, rows), err)
	}
}

// A repeated drop_view call returns its first result, although the view no longer exists.
func TestDropViewOnce(t *testing.T) {
	db := fresh(t)
	if _, err := db.Views.Save(t.Context(), changelog.By{Run: 1}, view.View{Name: "v", SQL: "select 1", RenderHint: "table", Refresh: "manual"}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if dropped, err := db.Views.Drop(t.Context(), changelog.By{Run: 1, Key: "k"}, "v"); err != nil || !dropped.Dropped {
			t.Errorf("call %d: %+v, %v", i, dropped, err)
		}
	}
	if _, err := db.Views.Drop(t.Context(), changelog.By{Run: 1}, "v"); err == nil {
		t.Error("another call drops it as well")
	}
}

// OSA-56, OSA-57: values must match the parameters in number and names.
func TestParameters(t *testing.T) {
	db := fresh(t)
	expenses(t, db)

	for _, test := range []struct {
		sql   string
		list  []any
		named map[string]any
		want  string
	}{
		{"select ?", []any{1}, nil, ""},
		{"select ?, ?2, ?", []any{1, 2, 3}, nil, ""},
		{"select '?', 2 as \"a?\", 1 -- ?\n", nil, nil, ""},
		{"select json_extract('{}', '$.x')", nil, nil, ""},
		{"select ?", []any{1, 2}, nil, "the SQL has 1 parameter and 2 values were given"},
		{"select 1", []any{1}, nil, "the SQL has 0 parameters and 1 values were given"},
		{"select ?, ?", []any{1}, nil, "more parameters than were given: 2, and 1 values"},
		{"select :a, @b, $c, :a", nil, map[string]any{"a": 1, "b": 2, ":c": 3}, ""},
		{"select :a", nil, map[string]any{"a": 1, "d": 2}, "the SQL has no parameter d"},
		{"select :a, :b", nil, map[string]any{"a": 1}, "there is no value for :b"},
		{"select :a", nil, nil, "more parameters than were given"},
		{"select :azAZ09_", nil, map[string]any{"azAZ09_": 1}, ""},
		{"select :À", nil, map[string]any{"À": 1}, ""},
		{"select:a", nil, map[string]any{"a": 1}, ""},
		{"select 1 as a$b", nil, nil, ""},
		{"select :a, ?", nil, map[string]any{"a": 1}, "a parameter without a name (?)"},
	} {
		_, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: test.sql, Params: test.list, Named: test.named})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.sql, err, test.want)
		}
	}

	_, err := db.Execute(t.Context(), changelog.By{Run: 1}, agentdb.ExecuteSpec{SQL: "update expenses set note = ? where id = 1", Params: []any{"x", "y"}})
	if err == nil || !strings.Contains(err.Error(), "the SQL has 1 parameter and 2 values were given") {
		t.Error(err)
	}
}
