package watcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rouse/internal/ledger"
)

// SetRunSettle says how long after a run a folder that converges is looked at, before Run.
func (w *Watcher) SetRunSettle(d time.Duration) { w.runSettle = d }

// Scan looks at every folder, as after lost events.
func (w *Watcher) Scan() { w.rescanAll(errors.New("so says a test")) }

// empty is a ledger that was just made: making it takes longer than most tests.
var empty = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "ledger.db")
	l, err := ledger.Open(context.Background(), ledger.Options{Path: path})
	if err != nil {
		return nil, err
	}
	if err := l.Close(); err != nil {
		return nil, err
	}

	return os.ReadFile(path)
})

// OpenLedger opens a new ledger in a folder.
func OpenLedger(t *testing.T, dir string) *ledger.Ledger {
	t.Helper()
	file, err := empty()
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, "ledger.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}

	l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}

	return l
}
