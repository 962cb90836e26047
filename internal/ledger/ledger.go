package ledger

import (
	"context"
	"errors"
	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/budget"
	"rouse/internal/ledger/record"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"rouse/internal/ledger/store"
)

// Ledger is safe for use by many goroutines.
type Ledger struct {
	*store.DB
	Blobs  *blob.Blobs
	Budget *budget.Budget
	labels labelCache
	river  *river.Client[pgx.Tx]      // of PostgreSQL
	member atomic.Pointer[Membership] // nil: this process has the ledger to itself
}

// What the database of the ledger says and takes.
type (
	Options       = store.Options
	ReadOnlyError = store.ReadOnlyError
)

// The rows that all subjects of the ledger share.
type (
	Usage    = record.Usage
	Run      = record.Run
	Attempt  = record.Attempt
	Call     = record.Call
	Notice   = record.Notice
	Event    = record.Event
	Obstacle = record.Obstacle
	Blocked  = record.Blocked
	Entry    = record.Entry
)

// The states of a notice.
const (
	NoticePending    = record.NoticePending
	NoticeDelivered  = record.NoticeDelivered
	NoticeUnverified = record.NoticeUnverified
	NoticeFailed     = record.NoticeFailed
)

// Errors of the database of the ledger.
var (
	ErrNotClaimable = record.ErrNotClaimable
	ErrFenced       = record.ErrFenced
	ErrNoLane       = record.ErrNoLane
	ErrNotFound     = store.ErrNotFound
	ErrLeaseLost    = store.ErrLeaseLost
)

// Open opens or creates a ledger. A file that cannot be used or written is a *ReadOnlyError, which
// wraps a *sqlite.CorruptError where it is damaged, lost or not a ledger.
func Open(ctx context.Context, o Options) (*Ledger, error) { return with(o)(store.Open(ctx, o)) }

// OpenReadOnly opens a ledger that cannot be written, for why; whatever would write is refused with
// that. It has to be of the schema that this rouse knows.
func OpenReadOnly(ctx context.Context, o Options, why *ReadOnlyError) (*Ledger, error) {
	return with(o)(store.OpenReadOnly(ctx, o, why))
}

// OpenShared opens a ledger for reading that another process may have open, and write.
func OpenShared(ctx context.Context, o Options) (*Ledger, error) {
	return with(o)(store.OpenShared(ctx, o))
}

// OpenFrozen opens a ledger for reading that nobody has open, and beside which nothing is to be written: one of a backup.
func OpenFrozen(ctx context.Context, o Options) (*Ledger, error) {
	return with(o)(store.OpenFrozen(ctx, o))
}

// with returns a function that makes a ledger of an opened database.
func with(o Options) func(*store.DB, error) (*Ledger, error) {
	return func(db *store.DB, err error) (*Ledger, error) {
		if err != nil {
			return nil, err
		}

		l := &Ledger{DB: db, Blobs: blob.New(db, o), Budget: &budget.Budget{DB: db}}
		if db.Postgres != nil {
			if l.river, err = newRiver(db.Schema, db.Logger); err != nil {
				return nil, errors.Join(err, l.Close())
			}
		}
		return l, nil
	}
}
