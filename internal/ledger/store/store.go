// Package store opens the database of the ledger and runs its transactions, on SQLite and on PostgreSQL.
//
// A transaction is a Tx that is passed down to the packages whose rows it changes. On PostgreSQL each transaction first checks that this
// node still has its lease.
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

// Migrations are the files of the folder migrations.
var Migrations, _ = fs.Sub(embedded, "migrations") // it fails only for an invalid name

// ApplicationID marks a file as a ledger: "rous".
const ApplicationID = 0x726f7573

// Options say where the ledger is: a SQLite file, or a PostgreSQL database.
type Options struct {
	Path   string           // SQLite file
	Blobs  string           // folder for values over 64 KiB; "" keeps them in the database
	DB     *sql.DB          // PostgreSQL, when Path is ""; stays the caller's to close
	Values objects.Store    // of PostgreSQL: where values over 64 KiB are, for all its processes; nil keeps them in the database
	Now    func() time.Time // the wall clock; nil means the system's

	Logger *slog.Logger // for damage that is found in the background; nil: nothing is logged

	Copying bool // it is opened for a Copy, and may be one that is not whole

	Verified   bool  // the file needs no check, and no backup before it is migrated
	Late       bool  // the file is checked in the background, however small it is
	Migrations fs.FS // of tests; nil means those of this rouse
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

// DB is the database of a ledger. It is safe for use by many goroutines.
type DB struct {
	writer     *sqlite.Writer
	read       *reader
	StoredPath func(string) string // returns a file's path as the database stores it
	ForUpdate  string              // the end of a query that reads a row to change it
	close      func() error
	clock
	lease     atomic.Pointer[Lease] // nil: this process has the ledger to itself
	epochs    atomic.Pointer[[]domain.Epoch]
	RunIDs    runCounter
	Path      string         // of its SQLite file; "" on PostgreSQL
	file      *file          // nil: there is none, or it is only read
	readOnly  *ReadOnlyError // nil: it was opened to be written
	Logger    *slog.Logger
	redaction atomic.Pointer[sqlite.Redaction]
	pruning   chan struct{} // of capacity 1: held while large values may be removed, or must not be
	signals

	// Of PostgreSQL. For a file they are zero.
	Postgres *sql.DB
	Class    int32  // of its advisory locks: one for each ledger in a database
	Channel  string // of the notifications of each transaction
	Schema   string
}

// clock tells the time of a ledger.
type clock struct {
	wall func() time.Time // of this machine
	now  func() time.Time // of the database, as far as it is known
	skew atomic.Int64     // nanoseconds that the database's clock is ahead
}

// signals wake those that wait for a change.
type signals struct {
	mu          sync.Mutex
	changed     chan struct{}
	hasWaiters  bool // whether anyone holds changed
	planChanged chan struct{}
}

// Open opens or creates a ledger. A file that cannot be used or written is a *ReadOnlyError, which
// wraps a *sqlite.CorruptError where it is damaged, lost or not a ledger.
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

// Close finishes what was accepted and closes the ledger.
func (l *DB) Close() error { return errors.Join(l.read.close(), l.close()) }

// Changed returns a channel that is closed at the next commit. Get it before reading: what is
// written in between closes it.
func (s *signals) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hasWaiters = true
	return s.changed
}

func (s *signals) notifyChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A new channel for each commit would cost something, and nobody may be waiting.
	if s.hasWaiters {
		close(s.changed)
		s.changed, s.hasWaiters = make(chan struct{}), false
	}
}

// Tx is a transaction of the ledger that writes.
type Tx = sqlite.Tx

// Redaction removes secrets from texts and documents.
type Redaction = sqlite.Redaction

// RedactWith has secrets removed from all texts that are written from now on, whoever gave them: errors of programs and
// servers, notices, questions, and what comes over the API.
func (l *DB) RedactWith(r *Redaction) { l.redaction.Store(r) }

// Redact returns a text, or a JSON document, without secrets.
func (l *DB) Redact(text string) string {
	r := l.redaction.Load()
	if r == nil {
		return text
	}
	return string(r.Document(json.RawMessage(text))) // of what is not JSON it makes a text
}

// Write writes in a transaction, and notifies those that wait for a change, or for one of the plan.
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

// InTx is Write for an operation with a result.
func InTx[T any](ctx context.Context, l *DB, op func(*Tx) (T, error)) (out T, err error) {
	err = Write(ctx, l, func(tx *Tx) (err error) {
		out, err = op(tx)
		return err
	})
	return out, err
}

// Exec is Write for one statement.
func Exec(ctx context.Context, l *DB, statement string, args ...any) error {
	return Write(ctx, l, func(tx *Tx) error {
		tx.Run(statement, args...)
		return nil
	})
}

// WriteQuietly writes in a transaction without notifying anyone. Every write goes through it. It returns an error if the file is lost.
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

// HostFault wraps a file system error of the ledger, so that it is not mistaken for an error of a tool's path.
func HostFault(err error) error {
	if domain.IsFileFault(err) {
		return &domain.HostError{Err: err}
	}
	return err
}

// PlanChanged returns a channel that is closed when a pause or a wake is next written. Get it
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

// Millis is an instant as the database holds it: milliseconds UTC, 0 for none.
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
