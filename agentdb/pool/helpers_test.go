package pool_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/pool"
	"rouse/agentdb/schema"
)

func expenses(t testing.TB, db *agentdb.DB) {
	t.Helper()
	_, err := db.CreateTable(context.Background(), changelog.By{Run: 1}, schema.TableSpec{
		Name: "expenses", Purpose: "What was spent",
		Columns: []schema.Column{{Name: "category", Type: "TEXT"}, {Name: "amount", Type: "REAL"}, {Name: "note", Type: "TEXT", Default: json.RawMessage(`"none"`)}},
		Indexes: []schema.Index{{Name: "expenses_category", Columns: []string{"category"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func insert(t testing.TB, db *agentdb.DB, table string, rows ...map[string]any) agentdb.Inserted {
	t.Helper()
	in, err := db.Insert(context.Background(), changelog.By{Run: 1}, table, rows)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// ask returns the result as a JSON list of rows, with the values in column order.
func ask(t testing.TB, db *agentdb.DB, sql string, params ...any) string {
	t.Helper()
	rows, err := db.Query(context.Background(), agentdb.QuerySpec{SQL: sql, Params: params, Limit: 5000})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return flat(t, rows)
}

func flat(t testing.TB, rows agentdb.Rows) string {
	t.Helper()
	out := [][]any{}
	for _, row := range rows.Rows {
		var values []any
		for _, c := range rows.Columns {
			values = append(values, row[c])
		}
		out = append(out, values)
	}

	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func wantError(t testing.TB, err error, kind, field, part string) {
	t.Helper()
	var bad *dberr.Error
	if !errors.As(err, &bad) {
		t.Fatalf("error %v, want an *Error of kind %s", err, kind)
	}
	if bad.Kind != kind || bad.Field != field || !strings.Contains(bad.Message, part) {
		t.Fatalf("error %+v, want kind %s, field %s, a message with %q", bad, kind, field, part)
	}
}

// lent returns an agent's database of a pool until the test ends.
func lent(t testing.TB, p *pool.Pool, agent string) *agentdb.DB {
	t.Helper()
	db, release, err := p.Get(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return db
}

// with lends an agent's database while do runs.
func with(t testing.TB, p *pool.Pool, agent string, do func(*agentdb.DB)) {
	t.Helper()
	db, release, err := p.Get(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	do(db)
}

// copyFiles copies a database and the files beside it.
func copyFiles(t testing.TB, from, to string) {
	t.Helper()
	for _, part := range []string{"", "-seal", "-wal"} {
		data, err := os.ReadFile(from + part)
		if os.IsNotExist(err) {
			continue
		}

		if err == nil {
			err = os.WriteFile(to+part, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// system reads one value of the host's own tables, which queries cannot read.
func system(t testing.TB, db *agentdb.DB, query string) (out string) {
	t.Helper()
	file, _ := db.File()
	if err := file.Read().QueryRowContext(t.Context(), query).Scan(&out); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}
