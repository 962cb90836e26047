package sqlite

import (
	"os"
	"path/filepath"
	"testing"
)

// On a read-only disk, a database can be read with the content of its log. SQLite creates no file beside it.
func TestOpenWithoutLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	writer := openOne(path, "_pragma=journal_mode(wal)")
	defer writer.Close()
	if _, err := writer.ExecContext(t.Context(), "create table t(id integer primary key, v blob not null); insert into t values (7, x'0102')"); err != nil {
		t.Fatal(err)
	}

	// The files that a killed process leaves.
	crashed := filepath.Join(t.TempDir(), "t.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(crashed+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	db := openWithoutLocks(crashed, []string{"mode=ro", "_pragma=query_only(1)"})
	defer db.Close()
	var id, size int
	if err := db.QueryRowContext(t.Context(), "select id, length(v) from t").Scan(&id, &size); err != nil || id != 7 || size != 2 {
		t.Errorf("row %d of %d bytes (%v)", id, size, err)
	}
	if names, err := filepath.Glob(crashed + "*"); err != nil || len(names) != 2 {
		t.Errorf("beside the database there are %v (%v)", names, err)
	}
}
