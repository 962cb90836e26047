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

// blank is the file of a ledger in which nothing is.
var blank = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "rouse-blank-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left of it is in the folder of temporary files

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

// Blank makes the file of a ledger in which nothing is, where none is: the schema of ledgers is made once for all tests
// of a package, for it takes longer than most of them.
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
