package ledger

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"sync"
	"time"

	"rouse/agentdb/sqlite"
)

//go:embed migrations
var migrations embed.FS

// applicationID marks a file as a ledger: "rous".
const applicationID = 0x726f7573

// Options say where the ledger is: a SQLite file, or a PostgreSQL database.
type Options struct {
	Path  string           // SQLite file
	Blobs string           // folder for values over 64 KiB; "" keeps them in the database
	DB    *sql.DB          // PostgreSQL, when Path is ""; stays the caller's to close
	Now   func() time.Time // the wall clock; nil means the system's
}

// Ledger is safe for use by many goroutines.
type Ledger struct {
	writer     *sqlite.Writer
	read       *sql.DB
	statements statementCache // prepared on read
	blobs      string
	storedPath func(string) string // a file's path as the claims hold it
	forUpdate  string              // what a query ends in that reads a row to change it
	close      func() error
	now        func() time.Time

	blobsInUse sync.RWMutex // held for reading from the write of a blob to the row that refers to it

	mu          sync.Mutex
	changed     chan struct{}
	hasWaiters  bool // whether anyone holds changed
	planChanged chan struct{}
}

// Open opens or creates a ledger. A file that is damaged or not a ledger is a
// *sqlite.CorruptError.
func Open(ctx context.Context, o Options) (*Ledger, error) {
	l := &Ledger{blobs: o.Blobs, storedPath: func(p string) string { return p }, changed: make(chan struct{}), planChanged: make(chan struct{})}
	if l.now = o.Now; l.now == nil {
		l.now = time.Now
	}

	if o.Path == "" {
		if err := l.openPostgres(ctx, o.DB); err != nil {
			return nil, err
		}
		return l, nil
	}

	dir, err := fs.Sub(migrations, "migrations/sqlite")
	if err != nil {
		return nil, err
	}

	db, err := sqlite.Open(ctx, sqlite.Options{Path: o.Path, ApplicationID: applicationID, Migrations: dir})
	if err != nil {
		return nil, err
	}

	l.writer, l.read, l.statements.db, l.close = db.Writer(), db.Read(), db.Read(), db.Close
	return l, nil
}

// Close finishes what was accepted and closes the ledger.
func (l *Ledger) Close() error { return errors.Join(l.statements.close(), l.close()) }

// Changed returns a channel that is closed at the next commit. Get it before reading: what is
// written in between closes it.
func (l *Ledger) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hasWaiters = true
	return l.changed
}

func (l *Ledger) notifyChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A new channel for each commit would cost something, and nobody may be waiting.
	if l.hasWaiters {
		close(l.changed)
		l.changed, l.hasWaiters = make(chan struct{}), false
	}
}

// do writes, and notifies whoever waits for a change.
func (l *Ledger) do(ctx context.Context, op func(*sqlite.Tx) error) error {
	if err := l.writer.Do(ctx, op); err != nil {
		return err
	}
	l.notifyChanged()
	return nil
}

// PlanChanged returns a channel that is closed when a pause or a wake is next written. Get it
// before reading, as with Changed.
func (l *Ledger) PlanChanged() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planChanged
}

// changePlan writes what may change when something is due next; op reports whether it did.
func (l *Ledger) changePlan(ctx context.Context, op func(*sqlite.Tx) (moved bool, err error)) error {
	moved := false
	err := l.do(ctx, func(tx *sqlite.Tx) error {
		var err error
		moved, err = op(tx)
		return err
	})
	if err != nil || !moved {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	close(l.planChanged)
	l.planChanged = make(chan struct{})
	return nil
}

// ms is an instant as the database holds it: milliseconds UTC, 0 for none.
func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// collect reads all rows of a query.
func collect[T any](rows *sql.Rows, err error, scan func(*sql.Rows) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}

	return out, rows.Err()
}
