package ledgertest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"rouse/internal/ledger"
)

// blank returns the database file of an empty ledger.
var blank = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "rouse-blank-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // ignore the error: the folder is temporary

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

// Blank writes the database file of an empty ledger to path unless the file exists. The schema is
// created once for all tests of a package, because that takes longer than most tests.
func Blank(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := blank()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, file, 0o600)
	}
	return err
}
