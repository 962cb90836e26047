package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// LostError reports that a database file was deleted, replaced or truncated while it was open.
// Later writes to it would be lost.
type LostError struct {
	Path, Reason string
	// Displaced reports whether the database file was replaced by another one, which is now next to
	// the old log.
	Displaced bool
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the file %s %s while it was in use, so what is written to it would be lost", e.Path, e.Reason)
}

// fileWatch records the files of an open database, to detect that another process removed or
// replaced one.
type fileWatch struct {
	path string
	lost atomic.Pointer[LostError]

	mu    sync.Mutex
	parts map[string]os.FileInfo // as first seen, by suffix
	size  int64                  // size of the database file without its log, at the last look
}

const wasReplaced = "was replaced by another"

// fileParts are the suffixes of the files of an open database that contain data.
var fileParts = []string{"", "-wal"}

// start records the files that are open. It resolves symbolic links, because SQLite too uses the
// path that the links led to when it opened the database.
func (f *fileWatch) start(path string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("cannot look after the database: %w", err)
	}

	f.path, f.parts = path, map[string]os.FileInfo{}
	_, err = f.look()
	return err
}

// look compares the files at their paths with those that were opened. It does not open them:
// closing them again would release SQLite's locks. shrunk reports whether the database file became
// smaller.
func (f *fileWatch) look() (shrunk bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, part := range fileParts {
		now, err := os.Stat(f.path + part)
		before := f.parts[part]
		switch {
		case errors.Is(err, fs.ErrNotExist) && before != nil:
			return false, f.lose(part, "was removed")
		case err != nil && before == nil: // SQLite creates the log when it is first needed
			continue
		case err != nil:
			return false, fmt.Errorf("cannot look after the database %s: %w", f.path, err)
		case before != nil && !os.SameFile(before, now):
			return false, f.lose(part, wasReplaced)
		}

		f.parts[part] = now
		if part == "" {
			shrunk, f.size = now.Size() < f.size, now.Size()
		}
	}

	if f.size == 0 {
		return false, f.lose("", "was emptied")
	}
	return shrunk, nil
}

// lose marks the database as lost and returns the LostError. This is permanent, because data read
// before may not match the file any more.
func (f *fileWatch) lose(part, how string) error {
	f.lost.CompareAndSwap(nil, &LostError{Path: f.path + part, Reason: how, Displaced: part == "" && how == wasReplaced})
	return f.lost.Load()
}

// Lost returns the *LostError of a database that CheckFile found to be lost, or nil.
func (db *DB) Lost() error {
	if lost := db.file.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// CheckFile returns a *LostError if the database file was removed, replaced or truncated. It is
// cheap: it reads the file only if the file has become smaller.
func (db *DB) CheckFile(ctx context.Context) error {
	if err := db.Lost(); err != nil {
		return err
	}

	shrunk, err := db.file.look()
	if err != nil || !shrunk {
		return err
	}

	// SQLite itself also shrinks a file when it releases unused space.
	if err := db.Check(ctx); err != nil && ctx.Err() == nil {
		return db.file.lose("", "was cut off")
	}
	return nil
}
