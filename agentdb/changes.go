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

// Changes reads the changelog.
func (db *DB) Changes(ctx context.Context, f changelog.Filter) ([]changelog.Change, error) {
	out, err := changelog.Read(ctx, db.db.Read(), f)
	if err != nil {
		return nil, db.Health.explain(ctx, err)
	}
	return out, nil
}

const undoTimeout = 30 * time.Minute

const undoMaxEntry = 512 << 20 // bytes of an entry of the changelog: one row of a file can have as much

// Undo reverses the changes of a run, the newest first, in one transaction that the changelog
// records. If a later change conflicts, and Force is not set, it changes nothing and the result
// names the conflict. It also deletes the run's entries in the call journal, so another attempt
// does its writes again. A quota does not stop an undo.
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

	by.Run, by.Key = 0, "" // what an undo writes is not the run's, or it would be undone too
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

// UndoneAt is when a run was last undone, zero when it was not. What the run recorded before that
// is no longer in the database.
func (db *DB) UndoneAt(ctx context.Context, run int64) (time.Time, error) {
	return changelog.UndoneAt(ctx, db.db.Read(), run)
}
