package ledger

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

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"rouse/internal/domain"
	"rouse/internal/storage/objects"
	"rouse/internal/storage/sqlite"
)

//go:embed migrations/*.sql
var embedded embed.FS

// migrations are the files of the folder migrations.
var migrations, _ = fs.Sub(embedded, "migrations") // it fails only for an invalid name

// applicationID marks a file as a ledger: "rous".
const applicationID = 0x726f7573

// Options say where the ledger is: a SQLite file, or a PostgreSQL database.
type Options struct {
	Path   string           // SQLite file
	Blobs  string           // folder for values over 64 KiB; "" keeps them in the database
	DB     *sql.DB          // PostgreSQL, when Path is ""; stays the caller's to close
	Values objects.Store    // of PostgreSQL: where values over 64 KiB are, for all its processes; nil keeps them in the database
	Now    func() time.Time // the wall clock; nil means the system's

	Logger *slog.Logger // for damage that is found in the background; nil: nothing is logged

	Copying bool // it is opened for a Copy, and may be one that is not whole

	verified   bool  // the file needs no check, and no backup before it is migrated
	late       bool  // the file is checked in the background, however small it is
	migrations fs.FS // of tests; nil means those of this rouse
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.migrations == nil {
		o.migrations = migrations
	}
	return o
}

// Ledger is safe for use by many goroutines.
type Ledger struct {
	writer     *sqlite.Writer
	read       *reader
	blobs      largeValues         // nil: they are in the database
	storedPath func(string) string // a file's path as the claims hold it
	forUpdate  string              // what a query ends in that reads a row to change it
	close      func() error
	wall       func() time.Time // of this machine
	now        func() time.Time // of the database, as far as it is known
	epochs     atomic.Pointer[[]domain.Epoch]
	runIDs     runCounter
	path       string         // of its SQLite file; "" where there is none
	file       *file          // nil: there is none, or it is only read
	readOnly   *ReadOnlyError // nil: it was opened to be written
	labels     labelCache
	logger     *slog.Logger
	db         *sql.DB                    // of PostgreSQL; nil for a file
	class      int32                      // of its advisory locks: one for each ledger in a database
	river      *river.Client[pgx.Tx]      // of PostgreSQL
	member     atomic.Pointer[Membership] // nil: this process has the ledger to itself
	skew       atomic.Int64               // nanoseconds that the database's clock is ahead
	redaction  atomic.Pointer[sqlite.Redaction]

	pruning chan struct{} // of capacity 1: held while large values may be removed, or must not be

	mu          sync.Mutex
	changed     chan struct{}
	hasWaiters  bool // whether anyone holds changed
	planChanged chan struct{}
}

// Open opens or creates a ledger. A file that cannot be used or written is a *ReadOnlyError, which
// wraps a *sqlite.CorruptError where it is damaged, lost or not a ledger.
func Open(ctx context.Context, o Options) (*Ledger, error) {
	o = o.withDefaults()
	l := newLedger(o)
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
		if err := l.checkWhole(ctx); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	if err := l.readEpochs(ctx); err != nil && !o.Copying {
		return nil, errors.Join(err, l.Close())
	}

	return l, nil
}

func newLedger(o Options) *Ledger {
	o = o.withDefaults()
	l := &Ledger{path: o.Path, logger: o.Logger, storedPath: func(p string) string { return p }, pruning: make(chan struct{}, 1), changed: make(chan struct{}), planChanged: make(chan struct{})}
	l.wall, l.now = o.Now, func() time.Time { return o.Now().Add(time.Duration(l.skew.Load())) }
	switch {
	case o.Blobs != "":
		l.blobs = &valueFiles{dir: o.Blobs, roomFor: l.roomFor}
	case o.Values != nil:
		v := &valueObjects{store: o.Values, now: l.now, log: o.Logger}
		v.mine = func(ctx context.Context) error { return l.checkClaim(ctx, v) }
		l.blobs = v
	}
	return l
}

// Close finishes what was accepted and closes the ledger.
func (l *Ledger) Close() error { return errors.Join(l.read.close(), l.close()) }

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

// do writes, and notifies whoever waits for a change, or for one of the plan.
func (l *Ledger) do(ctx context.Context, op func(*sqlite.Tx) error) error {
	replanned := false
	err := l.write(ctx, func(tx *sqlite.Tx) error {
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

// inTx returns the result of an operation that writes.
func inTx[T any](ctx context.Context, l *Ledger, op func(*sqlite.Tx) (T, error)) (out T, err error) {
	err = l.do(ctx, func(tx *sqlite.Tx) (err error) {
		out, err = op(tx)
		return err
	})
	return out, err
}

// exec is do for one statement.
func (l *Ledger) exec(ctx context.Context, statement string, args ...any) error {
	return l.do(ctx, func(tx *sqlite.Tx) error {
		tx.Run(statement, args...)
		return nil
	})
}

// Redaction removes secrets from texts and documents.
type Redaction = sqlite.Redaction

// RedactWith has secrets removed from all texts that are written from now on, whoever gave them: errors of programs and
// servers, notices, questions, and what comes over the API.
func (l *Ledger) RedactWith(r *Redaction) { l.redaction.Store(r) }

// redact returns a text, or a JSON document, without secrets.
func (l *Ledger) redact(text string) string {
	r := l.redaction.Load()
	if r == nil {
		return text
	}
	return string(r.Document(json.RawMessage(text))) // of what is not JSON it makes a text
}

// write is every way into the database; a ledger that is lost takes nothing.
func (l *Ledger) write(ctx context.Context, write func(*sqlite.Tx) error) error {
	op := func(tx *sqlite.Tx) error {
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
		return hostFault(l.writer.Do(ctx, op))
	}
	if err := l.roomFor(l.file.beforeWrite); err != nil {
		return hostFault(err)
	}

	return hostFault(l.file.afterWrite(l.roomFor(func() error { return l.writer.Do(ctx, op) })))
}

// hostFault wraps a file system error of the ledger, so that it is not mistaken for an error of a tool's path.
func hostFault(err error) error {
	if domain.IsFileFault(err) {
		return &domain.HostError{Err: err}
	}
	return err
}

// PlanChanged returns a channel that is closed when a pause or a wake is next written. Get it
// before reading, as with Changed.
func (l *Ledger) PlanChanged() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.planChanged
}

func (l *Ledger) notifyPlanChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.planChanged)
	l.planChanged = make(chan struct{})
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
