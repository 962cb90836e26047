// Package plantest checks the query plans of SQLite for the ledger's queries. A ledger can have a
// million runs and twenty million events, so a query must use an index and read only a few rows.
package plantest

import (
	"path/filepath"
	"strings"
	"testing"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Query is a query and a part of its plan.
type Query struct {
	SQL string
	By  string // part that the plan must contain
	Few bool   // whether the query may sort its rows, because there are few
}

// Check reports an error for each query that scans a large table, sorts many rows, or has another
// plan than expected.
func Check(t *testing.T, queries map[string]Query) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()

	var placeholders []any
	for i := range record.IdsAtOnce { // no query has more
		placeholders = append(placeholders, i)
	}

	for name, q := range queries {
		plan, err := store.List(store.Reads(t.Context(), db), func(detail *string) []any {
			return []any{new(int), new(int), new(int), detail}
		}, `explain query plan `+q.SQL, placeholders...)
		if text := strings.Join(plan, "; "); err != nil || !strings.Contains(text, q.By) {
			t.Errorf("%s: %s, want %s: %v", name, text, q.By, err)
		}

		for _, step := range plan {
			table, scan := strings.CutPrefix(step, "SCAN ")
			table, _, _ = strings.Cut(table, " ")
			// A scan is allowed in an index that holds only the wanted rows, or at the end of an
			// index.
			scan = scan && !strings.Contains(step, "outbox_undelivered") && !strings.Contains(step, "inbox_by_id") && !strings.Contains(step, "runs_unfinished")
			large := table == "runs" || table == "events" || table == "occurrences" || table == "o" || table == "r" || table == "outbox" || table == "inbox"
			sorts := strings.HasPrefix(step, "USE TEMP B-TREE FOR ORDER BY") && !q.Few
			if scan && large || sorts {
				t.Errorf("%s: %s", name, strings.Join(plan, "; "))
				break
			}
		}
	}
}
