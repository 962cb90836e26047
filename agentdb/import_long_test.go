package agentdb_test

import (
	"fmt"
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/transfer"
)

// No write accepts a row that is too long for a query to read. The error names the row, and no
// row is written.
func TestLongRowsAreRefused(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	if _, err := db.Execute(t.Context(), changelog.By{Run: 1}, agentdb.ExecuteSpec{SQL: "create unique index by_category on expenses(category); create table wide(k text primary key not null, a text, b text)"}); err != nil {
		t.Fatal(err)
	}
	insert(t, db, "wide", map[string]any{"k": "kept", "a": strings.Repeat("k", 9<<20)})

	long := strings.Repeat("x", 17<<20)
	half := strings.Repeat("y", 9<<20)
	by := changelog.By{Run: 2}
	file := func(spec transfer.ImportSpec, text string) error {
		spec.Source = strings.NewReader(text)
		if spec.Table == "" {
			spec.Table = "expenses"
		}
		spec.Limit = 256 << 20
		_, err := db.Import(t.Context(), by, spec)
		return err
	}
	upsert := transfer.ImportSpec{Name: "a.csv", Mode: "upsert", KeyColumns: []string{"category"}}

	for _, c := range []struct {
		name, says string
		do         func() error
	}{
		{"csv", "line 3 is too long: it has 17 MiB, of which 17 MiB are in column note", func() error {
			return file(transfer.ImportSpec{Name: "a.csv"}, "category,note\na,b\nc,"+long+"\nd,e\n")
		}},
		{"two columns", "line 2 is too long: it has 18 MiB, of which 9.0 MiB are in column category", func() error {
			return file(transfer.ImportSpec{Name: "a.csv"}, "category,note\n"+half+","+half+"\n")
		}},
		{"json", "too long: it has 17 MiB", func() error {
			return file(transfer.ImportSpec{Name: "a.json"}, `[{"note":"a"},{"note":"`+long+`"}]`)
		}},
		{"a table that is new", "too long: it has 17 MiB", func() error { return file(transfer.ImportSpec{Name: "a.csv", Table: "fresh"}, "note\n"+long+"\n") }},
		{"upsert", "too long: it has 17 MiB", func() error { return file(upsert, "category,note\nkept,"+long+"\n") }},
		{"what an upsert adds to", "line 2: string or blob too big", func() error {
			return file(transfer.ImportSpec{Name: "a.csv", Table: "wide", Mode: "upsert", KeyColumns: []string{"k"}}, "k,b\nkept,"+half+"\n")
		}},
		{"db_insert", "too long: it has 17 MiB", func() error {
			_, err := db.Insert(t.Context(), by, "expenses", []map[string]any{{"note": "a"}, {"note": long}})
			return err
		}},
		{"db_update", "a value is larger than 16 MiB", func() error {
			_, err := db.Update(t.Context(), by, "wide", map[string]any{"b": half}, map[string]any{"k": "kept"}, false)
			return err
		}},
		{"db_execute", "string or blob too big", func() error {
			_, err := db.Execute(t.Context(), by, agentdb.ExecuteSpec{SQL: "insert into expenses(note) values (hex(zeroblob(9000000)))"})
			return err
		}},
	} {
		err := c.do()
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %.300v", c.name, err)
		}
	}

	if got := ask(t, db, "select count(*), (select length(a) from wide) from expenses"); got != fmt.Sprintf("[[0,%d]]", 9<<20) {
		t.Error(got)
	}
	if got := system(t, db, "select count(*) from _changelog where run_id = 2"); got != "0" {
		t.Errorf("%s entries are in the changelog", got)
	}
}
