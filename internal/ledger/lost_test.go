package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/storage/sqlite"
)

// TestLostFile checks that a ledger accepts no more writes if its files are deleted, replaced or
// truncated while it is open. It must not change the files in their place.
func TestLostFile(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, path string){
		"deleted":      func(t *testing.T, path string) { remove(t, path) },
		"log deleted":  func(t *testing.T, path string) { remove(t, path+"-wal") },
		"emptied":      func(t *testing.T, path string) { cut(t, path, 0) },
		"cut off":      func(t *testing.T, path string) { cut(t, path, 3*4096) },
		"replaced":     func(t *testing.T, path string) { put(t, path) },
		"log replaced": func(t *testing.T, path string) { put(t, path+"-wal") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger.db")
			openAt := func() *ledger.Ledger {
				l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			if err := openAt().Close(); err != nil { // so that the file has all tables
				t.Fatal(err)
			}

			l := openAt()
			req := ledger.Request{Agent: "a", Trigger: domain.TriggerManual}
			accepted, err := l.Enqueue(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.CheckFile(t.Context()); err != nil {
				t.Fatalf("nothing has happened to it: %v", err)
			}

			take(t, path)
			var lost *sqlite.LostError
			if _, err := l.Start(t.Context(), ledger.Start{Run: accepted[0].Run}); !errors.As(err, &lost) {
				t.Errorf("a run began that cannot be recorded: %v", err)
			}
			if err := l.CheckFile(t.Context()); !errors.As(err, &lost) {
				t.Fatalf("not noticed: %v", err)
			}
			if _, err := l.Enqueue(t.Context(), req); !errors.As(err, &lost) {
				t.Errorf("it still takes runs: %v", err)
			}

			before := files(t, filepath.Dir(path))
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if after := files(t, filepath.Dir(path)); len(after) != len(before) {
				t.Errorf("closing it changed %v to %v", before, after)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// put puts another file in place of a file.
func put(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path+".other", []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".other", path); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
