package agentdb_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rouse/agentdb"
)

// OSA-60: a view has the parameters that its SQL names, each with a type and maybe a default;
// what does not fit is refused with the names.
func TestViewParameters(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"category": "food", "amount": 5}, map[string]any{"category": "rent", "amount": 900})
	by := agentdb.By{Run: 1}
	v := agentdb.View{Name: "over", SQL: "select category c from expenses where amount > :least and category like $like order by 1", RenderHint: "table", Refresh: "on_run",
		Params: []agentdb.ViewParam{{Name: ":least", Type: "Integer", Default: json.Number("1")}, {Name: "like", Default: "%"}}}
	saved, err := db.DefineView(t.Context(), by, v)
	if err != nil || fmt.Sprint(saved.Params) != "[{least integer 1} {like text %}]" {
		t.Fatalf("%+v %v", saved, err)
	}

	for name, test := range map[string]struct {
		given map[string]any
		want  string // the categories, or a part of the error
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
			out, err := db.RunView(t.Context(), "over", test.given)
			var got []string
			for _, row := range out.Rows.Rows {
				got = append(got, row["c"].(string))
			}
			if err == nil && strings.Join(got, " ") != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v %v, want %s", got, err, test.want)
			}
		})
	}

	if out, err := db.ShowView(t.Context(), "over"); err != nil || len(out.Rows.Rows) != 2 {
		t.Errorf("the stored answer is not that of the defaults: %+v %v", out, err)
	}
}

func TestViewParametersRefuses(t *testing.T) {
	db := fresh(t)
	for want, v := range map[string]agentdb.View{
		"the SQL uses :a, which params does not declare":    {SQL: "select :a"},
		"the SQL has no parameter :b":                       {SQL: "select 1", Params: []agentdb.ViewParam{{Name: "b"}}},
		"the parameter a is declared twice":                 {SQL: "select :a", Params: []agentdb.ViewParam{{Name: "a"}, {Name: "a"}}},
		"must be text, integer or real":                     {SQL: "select :a", Params: []agentdb.ViewParam{{Name: "a", Type: "date"}}},
		`is of type real, and "x" is not`:                   {SQL: "select :a", Params: []agentdb.ViewParam{{Name: "a", Type: "real", Default: "x"}}},
		"write :name and declare it in params":              {SQL: "select ?"},
		"needs a default for every parameter, and a has no": {SQL: "select :a", Refresh: "5m", Params: []agentdb.ViewParam{{Name: "a"}}},
	} {
		v.Name, v.RenderHint = "v", "table"
		if v.Refresh == "" {
			v.Refresh = "manual"
		}

		want = strings.TrimSuffix(want, " no")
		if _, err := db.DefineView(t.Context(), agentdb.By{Run: 1}, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", v.SQL, err, want)
		}
	}

	v := agentdb.View{Name: "v", SQL: "select :a || :b x", RenderHint: "table", Refresh: "manual", Params: []agentdb.ViewParam{{Name: "a"}, {Name: "b"}}}
	if _, err := db.DefineView(t.Context(), agentdb.By{Run: 1}, v); err != nil {
		t.Fatal(err)
	}
	if _, err := db.RunView(t.Context(), "v", nil); err == nil || !strings.Contains(err.Error(), "the view v needs a value for a, b") {
		t.Error(err)
	}
}

// OSA-56, OSA-57: values and parameters have to be as many, and of the same names.
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

	_, err := db.Execute(t.Context(), agentdb.By{Run: 1}, agentdb.ExecuteSpec{SQL: "update expenses set note = ? where id = 1", Params: []any{"x", "y"}})
	if err == nil || !strings.Contains(err.Error(), "the SQL has 1 parameter and 2 values were given") {
		t.Error(err)
	}
}
