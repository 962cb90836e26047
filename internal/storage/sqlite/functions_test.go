package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"rouse/internal/storage/sqlite"
)

// The replaced functions return the same results as SQLite's own, except for blobs that are not
// text.
func TestLinearFunctions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sqlite")
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	guarded, err := sqlite.OpenGuarded(path, sqlite.Guard{Allow: func(sqlite.Action, string, string, string, string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	defer guarded.Close()

	conn, err := guarded.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	values := []string{"null", "''", "'a'", "'äbä'", "'ä'", "'xxabxx'", "'x'", "12", "1.5", "2.0", "-0.25", "x'6162'", "x'61'", "x''"}
	for _, a := range values {
		for _, b := range values {
			for _, call := range []string{"instr(%s, %s)", "replace(%s, %s, 'z')", "trim(%s, %s)", "ltrim(%s, %s)", "rtrim(%s, %s)"} {
				query := "select coalesce(quote(" + fmt.Sprintf(call, a, b) + "), 'none')"
				var want, got string
				if err := db.Read().QueryRowContext(t.Context(), query).Scan(&want); err != nil {
					t.Fatal(err)
				}
				if err := conn.QueryRowContext(t.Context(), query).Scan(&got); err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Errorf("%s: %s, want %s", query, got, want)
				}
			}
		}
	}
}
