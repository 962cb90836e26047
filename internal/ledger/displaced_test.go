package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/maint"
	"rouse/internal/ledger/runs"
	"rouse/internal/storage/sqlite"
)

// TestDisplacedFile checks that an older copy in place of an open ledger is refused until its owner
// accepts it. It must not get the log of the ledger that was open, even if the process was killed
// before it noticed.
func TestDisplacedFile(t *testing.T) {
	t.Parallel()
	for name, noticed := range map[string]bool{"noticed": true, "killed before": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger.db")
			l := openWithRuns(t, path, 1)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			copyFile(t, path, path+".old")

			l = openWithRuns(t, path, 2)
			t.Cleanup(func() { _ = l.Close() }) // its files are gone
			if err := os.Rename(path+".old", path); err != nil {
				t.Fatal(err)
			}

			if noticed {
				var lost *sqlite.LostError
				if err := l.CheckFile(t.Context()); !errors.As(err, &lost) {
					t.Fatalf("not noticed: %v", err)
				}
			}

			for range 2 {
				_, err := ledger.Open(t.Context(), ledger.Options{Path: path})
				if err == nil || !strings.Contains(err.Error(), "rouse ledger accept") || !strings.Contains(err.Error(), "replaced") {
					t.Fatalf("opened without a question: %v", err)
				}
			}
			if kept, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "replaced", "*", "ledger.db-wal")); len(kept) != 1 {
				t.Errorf("the log is not kept: %v", kept)
			}

			if err := maint.Accept(t.Context(), ledger.Options{Path: path}); err != nil {
				t.Fatal(err)
			}
			if n := runsAt(t, path); n != 1 {
				t.Errorf("%d runs; the copy had 1", n)
			}
		})
	}
}

// TestCopiedWithItsLog checks that a home that was copied completely after a kill opens without
// confirmation.
func TestCopiedWithItsLog(t *testing.T) {
	t.Parallel()
	from, to := filepath.Join(t.TempDir(), "ledger.db"), filepath.Join(t.TempDir(), "ledger.db")
	l := openWithRuns(t, from, 3)
	t.Cleanup(func() { _ = l.Close() })
	for _, part := range []string{"", "-wal", "-seal"} {
		copyFile(t, from+part, to+part)
	}
	if n := runsAt(t, to); n != 3 {
		t.Errorf("%d runs of 3", n)
	}
}

func openWithRuns(t *testing.T, path string, n int) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := l.Enqueue(t.Context(), ledger.Request{Agent: "a", Trigger: domain.TriggerManual}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func runsAt(t *testing.T, path string) int {
	t.Helper()
	l := openWithRuns(t, path, 0)
	runs, err := l.Runs.List(t.Context(), runs.Filter{})
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return len(runs)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
