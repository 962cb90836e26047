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

// LostError is a database whose file was deleted, replaced or cut off while it was open. What is
// written to such a file is in none that is opened later.
type LostError struct {
	Path, Reason string
	// Displaced says that another file stands in the place of the database itself, beside its log.
	Displaced bool
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the file %s %s while it was in use, so what is written to it would be lost", e.Path, e.Reason)
}

// fileWatch is what is known of the files of an open database, to notice when another process takes
// one away.
type fileWatch struct {
	path string
	lost atomic.Pointer[LostError]

	mu    sync.Mutex
	parts map[string]os.FileInfo // by their suffix, as they were when they were first seen
	size  int64                  // of the database without its log, at the last look
}

const wasReplaced = "was replaced by another"

// fileParts are the suffixes of the files of an open database that hold what was written.
var fileParts = []string{"", "-wal"}

// start remembers which files are open. Where a link on the way leads later is no matter: SQLite
// too keeps to what the path meant when the database was opened.
func (f *fileWatch) start(path string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("cannot look after the database: %w", err)
	}

	f.path, f.parts = path, map[string]os.FileInfo{}
	_, err = f.look()
	return err
}

// look compares the files at their paths with those that are open. It does not open them, which
// would take away SQLite's locks. shrunk means that the database has become smaller.
func (f *fileWatch) look() (shrunk bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, part := range fileParts {
		now, err := os.Stat(f.path + part)
		before := f.parts[part]
		switch {
		case errors.Is(err, fs.ErrNotExist) && before != nil:
			return false, f.lose(part, "was removed")
		case err != nil && before == nil: // the log is made by the first who needs it
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

// lose is for good: what was read from the file before may not be what it holds by now.
func (f *fileWatch) lose(part, how string) error {
	f.lost.CompareAndSwap(nil, &LostError{Path: f.path + part, Reason: how, Displaced: part == "" && how == wasReplaced})
	return f.lost.Load()
}

// Lost is the *LostError of a database whose file CheckFile has found to be lost.
func (db *DB) Lost() error {
	if lost := db.file.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// CheckFile returns *LostError once the database's file is not the one that is open. It is cheap:
// it reads only a file that has become smaller.
func (db *DB) CheckFile(ctx context.Context) error {
	if err := db.Lost(); err != nil {
		return err
	}

	shrunk, err := db.file.look()
	if err != nil || !shrunk {
		return err
	}

	// SQLite gives unused space back, too.
	if err := db.Check(ctx); err != nil && ctx.Err() == nil {
		return db.file.lose("", "was cut off")
	}
	return nil
}
