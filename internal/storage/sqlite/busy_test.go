package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"rouse/internal/storage/sqlite"
)

// A lock of another process causes an error with advice. Writes work again after the lock is
// released.
func TestBusy(t *testing.T) {
	t.Parallel() // waits five seconds for the lock
	path := filepath.Join(t.TempDir(), "a.db")
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	write := func() error {
		return db.Do(t.Context(), func(tx *sqlite.Tx) error {
			_, err := tx.Exec("create table if not exists t (a)")
			return err
		})
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}

	other, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	conn, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	if _, err := conn.ExecContext(t.Context(), "begin immediate"); err != nil {
		t.Fatal(err)
	}
	if err := write(); err == nil || !strings.Contains(err.Error(), "another program holds the database") {
		t.Errorf("locked: %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}

	if err := write(); err != nil {
		t.Errorf("free again: %v", err)
	}
}
