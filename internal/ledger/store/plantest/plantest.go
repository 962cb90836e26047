// Package plantest checks how SQLite finds the rows of the ledger's queries: with a million runs and twenty million events, a query
// must read only the few rows that it needs, in the order of an index.
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
	By  string // must be in the plan
	Few bool   // it may sort its rows, because there are few: of jobs, stretches, or runs that wait
}

// Check fails for each query whose plan differs from what is expected, scans a large table, or sorts many rows.
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
			// Through an index that holds nothing but what is asked for, or at the end of one.
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
