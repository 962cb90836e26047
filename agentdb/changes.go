package agentdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/internal/storage/sqlite"
)

// Changes returns the changelog entries that match f.
func (db *DB) Changes(ctx context.Context, f changelog.Filter) ([]changelog.Change, error) {
	out, err := changelog.Read(ctx, db.db.Read(), f)
	if err != nil {
		return nil, db.Health.explain(ctx, err)
	}
	return out, nil
}

const undoTimeout = 30 * time.Minute

// undoMaxEntry is the maximum size of one changelog entry, in bytes. One row of an imported file
// can be this large.
const undoMaxEntry = 512 << 20

// Undo reverses the changes of a run, the newest first, in one transaction that the changelog
// records. If a later change conflicts and Force is not set, Undo changes nothing and returns the
// conflict. It also deletes the run's entries in the call journal, so that another attempt
// repeats its writes. The quota does not apply to Undo.
func (db *DB) Undo(ctx context.Context, by changelog.By, spec changelog.UndoSpec) (changelog.Undone, error) {
	if spec.Run <= 0 {
		return changelog.Undone{}, dberr.Invalid("run", "there is no run %d", spec.Run)
	}

	if by.Actor == "" {
		by.Actor = changelog.ActorUser
	}

	if !spec.DryRun {
		if err := db.CheckWritable(); err != nil {
			return changelog.Undone{}, err
		}
	}

	// The writes of an undo do not belong to the run. Otherwise they would be undone too.
	by.Run, by.Key = 0, ""
	how := sqlite.Confinement{Timeout: undoTimeout, MaxLength: undoMaxEntry}
	var out changelog.Undone
	err := db.runConfinedWithin(ctx, how, func(ctx context.Context, tx *sqlite.Tx) error {
		var err error
		out, err = changelog.Undo(ctx, tx, by, spec)
		return err
	})
	switch {
	case errors.Is(err, changelog.ErrRollback):
		return out, nil
	case err != nil:
		return changelog.Undone{}, undoError(ctx, db.Health, spec, err)
	}

	if len(out.Schema) > 0 {
		out.Remaining = append(out.Remaining, db.files.Warnings(ctx)...)
	}

	db.Quota.warnings(ctx, nil)
	return out, db.Shipped(ctx)
}

func undoError(ctx context.Context, h *Health, spec changelog.UndoSpec, err error) error {
	var bad *dberr.Error
	if errors.As(err, &bad) || ctx.Err() != nil {
		return err
	}
	if errors.Is(err, sqlite.ErrTimeout) {
		return &dberr.Error{Kind: dberr.KindTimeout, Retryable: true, Message: fmt.Sprintf("undoing run %d took longer than %s, so nothing of it was undone", spec.Run, undoTimeout)}
	}
	return h.explain(ctx, err)
}

// UndoneAt returns the time a run was last undone, or the zero time if it was not. The rows the
// run wrote before that time are no longer in the database.
func (db *DB) UndoneAt(ctx context.Context, run int64) (time.Time, error) {
	return changelog.UndoneAt(ctx, db.db.Read(), run)
}
