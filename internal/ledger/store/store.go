// Package store opens the database of the ledger and runs its transactions, on SQLite and on
// PostgreSQL.
//
// A transaction is a Tx that is passed down to the packages whose rows it changes. On PostgreSQL,
// each transaction first checks that this node still has its lease.
package store

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rouse/internal/domain"
	"rouse/internal/storage/objects"
	"rouse/internal/storage/sqlite"
)

//go:embed migrations/*.sql
var embedded embed.FS

// Migrations holds the files of the folder migrations.
var Migrations, _ = fs.Sub(embedded, "migrations") // fails only for an invalid name

// ApplicationID marks a SQLite file as a ledger. It is "rous" in ASCII.
const ApplicationID = 0x726f7573

// Options holds the location of a ledger, a SQLite file or a PostgreSQL database, and how to open
// it.
type Options struct {
	Path  string  // SQLite file
	Blobs string  // folder for values over 64 KiB; empty keeps them in the database
	DB    *sql.DB // PostgreSQL database if Path is empty; the caller must close it
	// Values is the shared storage for values over 64 KiB, on PostgreSQL. If nil, they stay in the
	// database.
	Values objects.Store
	Now    func() time.Time // wall clock; nil means the system's

	Logger *slog.Logger // for damage found in the background; optional

	Copying bool // whether it is opened for a Copy, and may be incomplete

	Verified   bool  // skips the check of the file, and the backup before a migration
	Late       bool  // checks the file in the background, regardless of its size
	Migrations fs.FS // for tests; nil means those of this rouse
}

func (o Options) WithDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Migrations == nil {
		o.Migrations = Migrations
	}
	return o
}

// DB is the database of a ledger. It is safe for concurrent use.
type DB struct {
	writer     *sqlite.Writer
	read       *reader
	StoredPath func(string) string // returns a file's path as the database stores it
	ForUpdate  string              // suffix of a query that reads a row to change it
	close      func() error
	clock
	lease     atomic.Pointer[Lease] // nil if this process does not share the ledger
	epochs    atomic.Pointer[[]domain.Epoch]
	RunIDs    runCounter
	Path      string         // SQLite file; empty on PostgreSQL
	file      *file          // nil without a file, or if it is read-only
	readOnly  *ReadOnlyError // nil if it was opened for writing
	Logger    *slog.Logger
	redaction atomic.Pointer[sqlite.Redaction]
	// pruning has capacity 1. It is held while large values may be removed, or must not be removed.
	pruning chan struct{}
	signals

	// Only set on PostgreSQL.
	Postgres *sql.DB
	Class    int32  // class of the advisory locks, unique for each ledger in a database
	Channel  string // notification channel of all transactions
	Schema   string
}

// clock returns the time of a ledger.
type clock struct {
	wall func() time.Time // of this machine
	now  func() time.Time // of the database, as far as known
	skew atomic.Int64     // nanoseconds that the database's clock is ahead
}

// signals holds the channels of callers that wait for a change.
type signals struct {
	mu          sync.Mutex
	changed     chan struct{}
	hasWaiters  bool // whether a caller has got changed
	planChanged chan struct{}
}

// Open opens or creates a ledger. It returns a *ReadOnlyError if the file cannot be used or
// written. That error wraps a *sqlite.CorruptError if the file is damaged, lost or not a ledger.
func Open(ctx context.Context, o Options) (*DB, error) {
	o = o.WithDefaults()
	l := newDB(o)
	var err error
	if o.Path == "" {
		err = l.openPostgres(ctx, o)
	} else {
		err = l.openFile(ctx, o)
	}
	if err != nil {
		return nil, err
	}

	if !o.Copying {
		if err := checkWhole(ctx, l); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	if err := ReadEpochs(ctx, l); err != nil && !o.Copying {
		return nil, errors.Join(err, l.Close())
	}

	return l, nil
}

func newDB(o Options) *DB {
	o = o.WithDefaults()
	l := &DB{Path: o.Path, Logger: o.Logger, StoredPath: func(p string) string { return p }, pruning: make(chan struct{}, 1), signals: signals{changed: make(chan struct{}), planChanged: make(chan struct{})}}
	l.wall, l.now = o.Now, func() time.Time { return o.Now().Add(time.Duration(l.skew.Load())) }
	return l
}

// Close finishes the accepted writes and closes the ledger.
func (l *DB) Close() error { return errors.Join(l.read.close(), l.close()) }

// Changed returns a channel that is closed at the next commit. Call it before reading, so that
// commits in between close it.
func (s *signals) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hasWaiters = true
	return s.changed
}

func (s *signals) notifyChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Create a new channel only if there may be waiters, because there are many commits.
	if s.hasWaiters {
		close(s.changed)
		s.changed, s.hasWaiters = make(chan struct{}), false
	}
}

// Tx is a write transaction of the ledger.
type Tx = sqlite.Tx

// Redaction removes secrets from texts and documents.
type Redaction = sqlite.Redaction

// RedactWith removes secrets from all texts that are written from now on, regardless of their
// source. Examples are error messages, notices, questions and API requests.
func (l *DB) RedactWith(r *Redaction) { l.redaction.Store(r) }

// Redact returns a text, or a JSON document, without secrets.
func (l *DB) Redact(text string) string {
	r := l.redaction.Load()
	if r == nil {
		return text
	}
	return string(r.Document(json.RawMessage(text))) // treats invalid JSON as text
}

// Write runs op in a write transaction and then wakes the waiters for a change. If op changed the
// plan, it also wakes the waiters for that.
func Write(ctx context.Context, l *DB, op func(*Tx) error) error {
	replanned := false
	err := WriteQuietly(ctx, l, func(tx *Tx) error {
		tx.Replanned = false
		err := op(tx)
		replanned = tx.Replanned
		return err
	})
	if err != nil {
		return err
	}

	l.notifyChanged()
	if replanned {
		l.notifyPlanChanged()
	}
	return nil
}

// InTx runs an operation with a result like Write.
func InTx[T any](ctx context.Context, l *DB, op func(*Tx) (T, error)) (out T, err error) {
	err = Write(ctx, l, func(tx *Tx) (err error) {
		out, err = op(tx)
		return err
	})
	return out, err
}

// Exec runs one statement like Write.
func Exec(ctx context.Context, l *DB, statement string, args ...any) error {
	return Write(ctx, l, func(tx *Tx) error {
		tx.Run(statement, args...)
		return nil
	})
}

// WriteQuietly runs write in a transaction without waking waiters. All writes go through it. It
// returns an error if the file is lost or read-only.
func WriteQuietly(ctx context.Context, l *DB, write func(*Tx) error) error {
	op := func(tx *Tx) error {
		tx.Redaction = l.redaction.Load()
		return write(tx)
	}
	if l.readOnly != nil {
		return l.readOnly
	}
	if err := l.lost(); err != nil {
		return err
	}
	if l.file == nil {
		return HostFault(l.writer.Do(ctx, op))
	}
	if err := RoomFor(l, l.file.beforeWrite); err != nil {
		return HostFault(err)
	}

	return HostFault(l.file.afterWrite(RoomFor(l, func() error { return l.writer.Do(ctx, op) })))
}

// HostFault wraps a file system error of the ledger, so that it is not mistaken for an error of a
// tool's path.
func HostFault(err error) error {
	if domain.IsFileFault(err) {
		return &domain.HostError{Err: err}
	}
	return err
}

// PlanChanged returns a channel that is closed when a pause or a wake is next written. Call it
// before reading, as with Changed.
func (s *signals) PlanChanged() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.planChanged
}

func (s *signals) notifyPlanChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.planChanged)
	s.planChanged = make(chan struct{})
}

// Millis returns a time as the database stores it: milliseconds UTC, or 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func Instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func Flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
