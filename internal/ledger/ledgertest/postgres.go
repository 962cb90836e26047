package ledgertest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"rouse/internal/ledger"
)

var schemas atomic.Int64

// Postgres gives a test a schema of its own in the database that ROUSE_TEST_POSTGRES names, and removes it at the end: the
// URL to reach it, and its name, which is the application_name of its connections as well. Without the variable the test
// is skipped.
func Postgres(t testing.TB) (url, schema string) {
	t.Helper()
	base := os.Getenv("ROUSE_TEST_POSTGRES")
	if base == "" {
		t.Skip("ROUSE_TEST_POSTGRES is not set; .ci/run sets it")
	}

	admin := OpenPostgres(t, base)
	schema = fmt.Sprintf("rouse_test_%d_%d", os.Getpid(), schemas.Add(1))
	if _, err := admin.ExecContext(t.Context(), "create schema "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.ExecContext(context.WithoutCancel(t.Context()), "drop schema "+schema+" cascade"); err != nil {
			t.Error(err)
		}
	})

	separator := "?"
	if strings.Contains(base, "?") {
		separator = "&"
	}
	return base + separator + "search_path=" + schema + "&application_name=" + schema, schema
}

// OpenPostgres opens a database for as long as a test lasts.
func OpenPostgres(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// OpenOn opens the ledger of a database of PostgreSQL, for as long as a test lasts.
func OpenOn(t testing.TB, url string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(context.WithoutCancel(t.Context()), ledger.Options{DB: OpenPostgres(t, url)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
