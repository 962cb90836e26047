package ledger

import (
	"context"
	"errors"

	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/budget"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/fileop"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/maint"
	"rouse/internal/ledger/node"
	"rouse/internal/ledger/outbox"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/steps"
	"rouse/internal/ledger/store"
	"rouse/internal/ledger/wake"
	"rouse/internal/ledger/workspace"
)

// Ledger is the ledger of one rouse installation. It is safe for concurrent use.
type Ledger struct {
	*store.DB
	Artifacts   *artifact.Artifacts
	Blobs       *blob.Blobs
	Budget      *budget.Budget
	Claims      *claim.Claims
	Events      *event.Events
	FileOps     *fileop.FileOps
	Inbox       *inbox.Inbox
	Incidents   *incident.Incidents
	Labels      *label.Labels
	Maint       *maint.Maint
	Nodes       *node.Nodes
	Occurrences *runs.Occurrences
	Outbox      *outbox.Outbox
	Pauses      *pause.Pauses
	Runs        *runs.Runs
	Steps       *steps.Steps
	Wakes       *wake.Wakes
	Watches     *claim.Watches
	Workspaces  *workspace.Workspaces
}

type (
	Options       = store.Options
	ReadOnlyError = store.ReadOnlyError
)

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

// Actors that can pause something, plan a wake or change a workspace.
const (
	ByAgent  = record.ByAgent
	ByUser   = record.ByUser
	BySystem = record.BySystem
)

// Errors of the database.
var (
	ErrNotClaimable = record.ErrNotClaimable
	ErrFenced       = record.ErrFenced
	ErrNoLane       = record.ErrNoLane
	ErrNotFound     = store.ErrNotFound
	ErrLeaseLost    = store.ErrLeaseLost
)

// Open opens or creates a ledger. It returns a *ReadOnlyError if the file cannot be used or
// written. That error wraps a *sqlite.CorruptError if the file is damaged, lost or not a ledger.
func Open(ctx context.Context, o Options) (*Ledger, error) { return with(o)(store.Open(ctx, o)) }

// OpenReadOnly opens a ledger that cannot be written because of why. Every write returns why. It
// returns an error if the file does not have the schema version of this rouse.
func OpenReadOnly(ctx context.Context, o Options, why *ReadOnlyError) (*Ledger, error) {
	return with(o)(store.OpenReadOnly(ctx, o, why))
}

// OpenShared opens a ledger for reading while another process may have it open for writing.
func OpenShared(ctx context.Context, o Options) (*Ledger, error) {
	return with(o)(store.OpenShared(ctx, o))
}

// OpenFrozen opens a ledger for reading without creating files beside it, for example one in a
// backup. No other process may have it open.
func OpenFrozen(ctx context.Context, o Options) (*Ledger, error) {
	return with(o)(store.OpenFrozen(ctx, o))
}

// with returns a function that builds a ledger from an opened database.
func with(o Options) func(*store.DB, error) (*Ledger, error) {
	return func(db *store.DB, err error) (*Ledger, error) {
		if err != nil {
			return nil, err
		}

		blobs, pauses := blob.New(db, o), &pause.Pauses{DB: db}
		nodes, err := node.New(db)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return &Ledger{
			DB:          db,
			Artifacts:   &artifact.Artifacts{DB: db, Blobs: blobs},
			Blobs:       blobs,
			Budget:      &budget.Budget{DB: db},
			Claims:      &claim.Claims{DB: db},
			Events:      &event.Events{DB: db},
			FileOps:     &fileop.FileOps{DB: db, Blobs: blobs},
			Inbox:       &inbox.Inbox{DB: db},
			Incidents:   &incident.Incidents{DB: db},
			Labels:      &label.Labels{DB: db},
			Maint:       &maint.Maint{DB: db, Blobs: blobs, Nodes: nodes, Pauses: pauses},
			Nodes:       nodes,
			Occurrences: &runs.Occurrences{DB: db},
			Outbox:      &outbox.Outbox{DB: db},
			Pauses:      pauses,
			Runs:        &runs.Runs{DB: db, Blobs: blobs},
			Steps:       &steps.Steps{DB: db, Blobs: blobs},
			Wakes:       &wake.Wakes{DB: db},
			Watches:     &claim.Watches{DB: db},
			Workspaces:  &workspace.Workspaces{DB: db, Blobs: blobs},
		}, nil
	}
}
