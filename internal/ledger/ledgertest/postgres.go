package ledgertest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // database driver

	"rouse/internal/ledger"
)

var schemas atomic.Int64

// Postgres creates a schema for a test in the database named by ROUSE_TEST_POSTGRES. The schema is
// dropped at the end of the test. Postgres returns a URL for the schema, and its name, which is
// also the application_name of connections. It skips the test if the variable is not set.
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

// OpenPostgres opens a database and closes it at the end of the test.
func OpenPostgres(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// OpenOn opens the ledger of a PostgreSQL database and closes it at the end of the test.
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
