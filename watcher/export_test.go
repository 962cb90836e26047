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

// SetRunSettle sets the wait from the end of a run to the next scan in mode converge. It must be
// called before Run.
func (w *Watcher) SetRunSettle(d time.Duration) { w.runSettle = d }

// Scan requests a scan of every folder, as after lost events.
func (w *Watcher) Scan() { w.rescanAll(errors.New("so says a test")) }

// empty is a new ledger that tests copy, because creating one takes longer than most tests.
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
