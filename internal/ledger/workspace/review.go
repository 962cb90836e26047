package workspace

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Call begins the Call of an info that says that a workspace needs a review.
const Call = "workspace/"

// Enter makes a workspace the one that an attempt's run works in, and returns it. A checkpoint of before
// the run is kept, the first time. The error is a *BlockedError while the workspace is paused, archived or needs a review.
func (l *Workspaces) Enter(ctx context.Context, a record.Attempt, id int64) (Workspace, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Workspace, error) {
		r, err := record.CheckFence(tx, l.DB, a)
		if err != nil {
			return Workspace{}, err
		}
		w, err := lock(tx, l.DB, id)
		switch {
		case err != nil:
			return w, err
		case w.Agent != r.Agent:
			return w, fmt.Errorf("workspace %d is %w", id, store.ErrNotFound)
		case r.Workspace != 0 && r.Workspace != id:
			return w, wrong("", "run %d works in workspace %d already", r.ID, r.Workspace)
		}

		if err := w.Blocked(); err != nil {
			return w, err
		}
		return w, beginIn(tx, r, w, l.DB.Now())
	})
}

// beginIn keeps a checkpoint of a workspace from before a run changes it, once for the run.
func beginIn(tx *store.Tx, r record.Run, w Workspace, now time.Time) error {
	if r.Workspace == 0 {
		tx.Run(`update runs set workspace = $1 where id = $2`, w.ID, r.ID)
	}

	_, err := lastCheckpointIn(tx, r.ID, w.ID)
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}

	// A run that was begun from a checkpoint goes on from what that says of the run.
	c := Checkpoint{}
	if r.Checkpoint != 0 {
		c, err = store.One(tx, checkpointFields, `select `+checkpointColumns+` from checkpoints where id = $1 and workspace = $2`, r.Checkpoint, w.ID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}

	c.Workspace, c.Run, c.Key, c.At, c.Phase, c.Role, c.State = w.ID, r.ID, "", store.Instant(store.Millis(now)), w.Phase, w.Role, w.State
	if err := insertCheckpoint(tx, &c); err != nil {
		return err
	}
	return addEvent(tx, Author{}, r, w, now, eventBegun, nil)
}

// RequireReviews has their owner look at the workspaces that a run left half changed: it did not succeed (it
// is dirty), and it did something since its last checkpoint (it is partial) (OSL-30).
func RequireReviews(tx *store.Tx, db *store.DB, r record.Run, outcome domain.Outcome, now time.Time) error {
	if !outcome.Failed() && outcome != domain.OutcomeCancelled && outcome != domain.OutcomeInterrupted {
		return nil
	}

	touched, err := store.Values[int64](tx, `select distinct workspace from workspace_events where run = cast($1 as bigint) and run <> 0 order by workspace`, r.ID)
	if err != nil {
		return err
	}

	for _, id := range touched {
		w, err := lock(tx, db, id)
		if err != nil {
			return err
		}

		partial, err := leftPartial(tx, r, w)
		if err != nil {
			return err
		}
		if !partial || w.Review != 0 {
			continue
		}

		w.Review = r.ID
		put(tx, w)
		if err := addEvent(tx, Author{}, r, w, now, eventReview, map[string]any{"outcome": outcome}); err != nil {
			return err
		}
		if err := addReviewInfo(tx, r, w, outcome, now); err != nil {
			return err
		}
	}

	return nil
}

// CheckReview refuses what would have a run go on that left a workspace half changed.
func CheckReview(tx *store.Tx, r record.Run) error {
	w, half, err := store.OrFalse(store.One(tx, fields, `select `+columns+` from workspaces where review = $1 and review <> 0 order by id limit 1`, r.ID))
	if half {
		err = &BlockedError{w}
	}
	return err
}

// marks are the events after which a workspace is in order, as a list of SQL.
const marks = `'begun', 'checkpoint', 'acknowledged', 'discarded', 'retried'`

// discardedKey begins the key of a call whose writes were discarded, with the number of the write behind it.
const discardedKey = "discarded/"

// DiscardedCalls are the keys of the calls of a run whose writes to its workspace its owner has discarded, and that
// were not made again since: another attempt makes them again.
func (l *Workspaces) DiscardedCalls(ctx context.Context, run int64) ([]string, error) {
	return store.Values[string](store.Reads(ctx, l.DB), `select distinct gone.key from (select substr(key, length(cast($1 as text) || id || '/') + 1) as key from workspace_events where run = cast($2 as bigint) and run <> 0 and key like cast($1 as text) || '%') as gone
		where not exists (select 1 from workspace_events as again where again.run = $2 and again.key = gone.key)`, discardedKey, run)
}

// leftPartial reports whether a run has changed a workspace, or anything outside while it worked in it, since
// it was last known to be in order.
func leftPartial(tx *store.Tx, r record.Run, w Workspace) (bool, error) {
	var mark, since int64
	if err := store.Scan(tx, []any{&mark, &since}, `select coalesce(max(id), 0), coalesce(max(at), 0) from workspace_events where workspace = $1 and run = cast($2 as bigint) and run <> 0
		and kind in (`+marks+`)`, w.ID, r.ID); err != nil {
		return false, err
	}

	changes, err := store.Value[bool](tx, `select exists (select 1 from workspace_events where workspace = $1 and run = cast($2 as bigint) and run <> 0 and id > $3 and kind in ('changed', 'artifact'))`, w.ID, r.ID, mark)
	if err != nil || changes || r.Workspace != w.ID {
		return changes, err
	}

	// A call that failed to begin has changed nothing; of one that was cut off nobody knows.
	return store.Value[bool](tx, `select exists (select 1 from calls where run = $1 and started_at >= $2 and effect in ('write', 'external') and state in ('done', 'uncertain'))`, r.ID, since)
}

func addReviewInfo(tx *store.Tx, r record.Run, w Workspace, outcome domain.Outcome, now time.Time) error {
	return inbox.AddInfo(tx, r, inbox.Question{
		Call:  fmt.Sprintf("%s%d/%d", Call, w.ID, store.Millis(now)),
		Title: fmt.Sprintf("workspace %s needs a review", w.Name),
		Message: fmt.Sprintf("Run %d ended (%s) in the middle of its changes, so that no run works in this workspace of the skill %s until you have looked. As it is: rouse workspaces acknowledge %[4]d; "+
			"as it was at the last checkpoint: rouse workspaces discard %[4]d; once more from there: rouse workspaces retry %[4]d. See: rouse workspaces show %[4]d", r.ID, strings.ReplaceAll(string(outcome), "_", " "), w.Skill, w.ID),
	}, now)
}

// AcknowledgeReview accepts a workspace as a run left it.
func (l *Workspaces) AcknowledgeReview(ctx context.Context, id int64) (Workspace, error) {
	return l.review(ctx, id, eventAcknowledged, func(tx *store.Tx, w *Workspace, _ record.Run, last Checkpoint) error {
		// What is accepted is in order from now on: a retry of the run begins with it.
		last.At, last.Phase, last.Role, last.State = w.UpdatedAt, w.Phase, w.Role, w.State
		return insertCheckpoint(tx, &last)
	})
}

// DiscardReview puts a workspace back to the last checkpoint of the run that left it half changed. What the run
// has added to its artifacts since is discarded; what it did outside of the workspace stays.
func (l *Workspaces) DiscardReview(ctx context.Context, id int64) (Workspace, error) {
	return l.review(ctx, id, eventDiscarded, func(tx *store.Tx, w *Workspace, _ record.Run, last Checkpoint) error {
		restore(tx, w, last)
		return nil
	})
}

// BeginRetry locks a workspace whose review is about to end with a new run, and puts it back to the last checkpoint of the run r that
// left it half changed. The caller queues the new run, which begins from that checkpoint, and calls EndRetry.
func BeginRetry(tx *store.Tx, db *store.DB, id int64, now time.Time) (w Workspace, r record.Run, last Checkpoint, err error) {
	if w, r, last, err = beginReview(tx, db, id, now); err == nil {
		restore(tx, &w, last)
	}
	return w, r, last, err
}

// EndRetry ends the review that BeginRetry has begun.
func EndRetry(tx *store.Tx, w Workspace, r record.Run, now time.Time) error {
	return endReview(tx, &w, r, eventRetried, now)
}

// restore puts a workspace back to a checkpoint. The calls that wrote to it since may be made again: their keys are free.
func restore(tx *store.Tx, w *Workspace, c Checkpoint) {
	w.State, w.Phase, w.Role = c.State, c.Phase, c.Role
	tx.Run(`update workspace_events set key = cast($1 as text) || id || '/' || key where workspace = $2 and run = $3 and key <> '' and kind in ('changed', 'artifact', 'status')
		and id > (select coalesce(max(id), 0) from workspace_events as mark where mark.workspace = $2 and mark.run = $3 and mark.kind in (`+marks+`))`, discardedKey, w.ID, c.Run)
	tx.Run(`update artifacts set key = cast($1 as text) || id || '/' || key where workspace = $2 and run = $3 and id > $4`, discardedKey, w.ID, c.Run, c.artifact)

	tx.Run(`update artifacts set superseded_by = 0 where workspace = $1 and superseded_by in (select id from artifacts as late where late.workspace = $1 and late.run = $2 and late.id > $3)`, w.ID, c.Run, c.artifact)
	tx.Run(`update artifacts set discarded = 1 where workspace = $1 and run = $2 and id > $3`, w.ID, c.Run, c.artifact)
}

// review ends the review of a workspace with what its owner has decided. The error is a *WorkspaceError when it needs none.
func (l *Workspaces) review(ctx context.Context, id int64, kind string, decide func(tx *store.Tx, w *Workspace, r record.Run, last Checkpoint) error) (Workspace, error) {
	now := l.DB.Now()
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Workspace, error) {
		w, r, last, err := beginReview(tx, l.DB, id, now)
		if err != nil {
			return w, err
		}
		if err := decide(tx, &w, r, last); err != nil {
			return w, err
		}
		err = endReview(tx, &w, r, kind, now)
		return w, err
	})
}

// beginReview locks a workspace that needs a review. It also returns the run that left it half changed, and the last checkpoint of
// that run.
func beginReview(tx *store.Tx, db *store.DB, id int64, now time.Time) (w Workspace, r record.Run, last Checkpoint, err error) {
	if w, err = lock(tx, db, id); err != nil {
		return w, r, last, err
	}
	if w.Review == 0 {
		return w, r, last, wrong("", "workspace %d (%s) needs no review", w.ID, w.Name)
	}

	if r, err = store.One(tx, record.RunFields, `select `+record.RunColumns+` from runs where id = $1`, w.Review); err != nil {
		return w, r, last, err
	}
	if last, err = lastCheckpointIn(tx, r.ID, w.ID); err != nil {
		return w, r, last, err
	}

	w.LockVersion++
	w.UpdatedAt = store.Instant(store.Millis(now))
	return w, r, last, nil
}

// endReview stores a workspace whose review ends, and withdraws the info about it.
func endReview(tx *store.Tx, w *Workspace, r record.Run, kind string, now time.Time) error {
	w.Review = 0
	put(tx, *w)
	inbox.WithdrawInfos(tx, r.ID, fmt.Sprintf("%s%d/", Call, w.ID), now)
	return addEvent(tx, Author{}, r, *w, now, kind, nil)
}

// Runs lists the runs that worked in a workspace, newest first, as far as they are kept.
func (l *Workspaces) Runs(ctx context.Context, workspace int64, limit int) ([]record.Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where workspace = cast($1 as bigint) and workspace <> 0 order by id desc limit $2`, workspace, limit)
}
