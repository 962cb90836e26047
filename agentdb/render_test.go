package agentdb_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"rouse/agentdb"
)

// OSA-63: at most 8,000 characters, columns go first, then the oldest tables, and nothing
// that is in a row.
func TestSchemaString(t *testing.T) {
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

func wide(t *testing.T, db *agentdb.DB, name string, columns int) {
	t.Helper()
	spec := agentdb.TableSpec{Name: name, Purpose: "Wide"}
	for i := range columns {
		spec.Columns = append(spec.Columns, agentdb.Column{Name: fmt.Sprint("column_", i), Type: "TEXT"})
	}
	if _, err := db.CreateTable(t.Context(), agentdb.By{}, spec); err != nil {
		t.Fatal(err)
	}
}
