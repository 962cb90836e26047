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

// Call is the prefix of the Call of an info about a workspace that needs a review.
const Call = "workspace/"

// Enter makes a workspace the one that the attempt's run works in, and returns it. The first call
// stores a checkpoint of the workspace before the run. It returns a *BlockedError if the workspace
// is paused, is archived or needs a review.
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

// beginIn stores a checkpoint of a workspace before a run changes it, once for each run.
func beginIn(tx *store.Tx, r record.Run, w Workspace, now time.Time) error {
	if r.Workspace == 0 {
		tx.Run(`update runs set workspace = $1 where id = $2`, w.ID, r.ID)
	}

	_, err := lastCheckpointIn(tx, r.ID, w.ID)
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}

	// A run that started from a checkpoint continues from its run state.
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

// RequireReviews marks the workspaces for review that a run left partly changed. These are the
// workspaces that a failed, cancelled or interrupted run has changed since its last checkpoint.
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

// CheckReview returns a *BlockedError if the run left a workspace partly changed. Such a run cannot
// continue before the review.
func CheckReview(tx *store.Tx, r record.Run) error {
	w, half, err := store.OrFalse(store.One(tx, fields, `select `+columns+` from workspaces where review = $1 and review <> 0 order by id limit 1`, r.ID))
	if half {
		err = &BlockedError{w}
	}
	return err
}

// marks lists the kinds of events after which a workspace is consistent, as an SQL list.
const marks = `'begun', 'checkpoint', 'acknowledged', 'discarded', 'retried'`

// discardedKey is the prefix of the key of a discarded write. The ID of the write's event and the
// original key follow.
const discardedKey = "discarded/"

// DiscardedCalls returns the keys of a run's calls that wrote to its workspace and were discarded.
// It omits calls that were repeated since. The next attempt makes these calls again.
func (l *Workspaces) DiscardedCalls(ctx context.Context, run int64) ([]string, error) {
	return store.Values[string](store.Reads(ctx, l.DB), `select distinct gone.key from (select substr(key, length(cast($1 as text) || id || '/') + 1) as key from workspace_events where run = cast($2 as bigint) and run <> 0 and key like cast($1 as text) || '%') as gone
		where not exists (select 1 from workspace_events as again where again.run = $2 and again.key = gone.key)`, discardedKey, run)
}

// leftPartial reports whether a run has made changes since the workspace was last consistent.
// External changes count, too, if the run works in this workspace.
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

	// A call that failed to start has changed nothing. The effect of an interrupted call is
	// unknown.
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

// AcknowledgeReview ends the review and keeps the workspace as the run left it.
func (l *Workspaces) AcknowledgeReview(ctx context.Context, id int64) (Workspace, error) {
	return l.review(ctx, id, eventAcknowledged, func(tx *store.Tx, w *Workspace, _ record.Run, last Checkpoint) error {
		// The accepted state is consistent, so a retry of the run begins with it.
		last.At, last.Phase, last.Role, last.State = w.UpdatedAt, w.Phase, w.Role, w.State
		return insertCheckpoint(tx, &last)
	})
}

// DiscardReview ends the review and restores the workspace from the last checkpoint of the run.
// Artifacts that the run added since then are discarded. Changes outside of the workspace are kept.
func (l *Workspaces) DiscardReview(ctx context.Context, id int64) (Workspace, error) {
	return l.review(ctx, id, eventDiscarded, func(tx *store.Tx, w *Workspace, _ record.Run, last Checkpoint) error {
		restore(tx, w, last)
		return nil
	})
}

// BeginRetry locks a workspace whose review ends with a new run. It restores the workspace from the
// last checkpoint of r, the run that left it partly changed. The caller must queue the new run,
// which begins from that checkpoint, and call EndRetry.
func BeginRetry(tx *store.Tx, db *store.DB, id int64, now time.Time) (w Workspace, r record.Run, last Checkpoint, err error) {
	if w, r, last, err = beginReview(tx, db, id, now); err == nil {
		restore(tx, &w, last)
	}
	return w, r, last, err
}

// EndRetry ends the review that BeginRetry began.
func EndRetry(tx *store.Tx, w Workspace, r record.Run, now time.Time) error {
	return endReview(tx, &w, r, eventRetried, now)
}

// restore restores a workspace from a checkpoint, and discards the artifacts that the run added
// since. It also renames the keys of the calls that wrote since, so that the calls can be repeated.
func restore(tx *store.Tx, w *Workspace, c Checkpoint) {
	w.State, w.Phase, w.Role = c.State, c.Phase, c.Role
	tx.Run(`update workspace_events set key = cast($1 as text) || id || '/' || key where workspace = $2 and run = $3 and key <> '' and kind in ('changed', 'artifact', 'status')
		and id > (select coalesce(max(id), 0) from workspace_events as mark where mark.workspace = $2 and mark.run = $3 and mark.kind in (`+marks+`))`, discardedKey, w.ID, c.Run)
	tx.Run(`update artifacts set key = cast($1 as text) || id || '/' || key where workspace = $2 and run = $3 and id > $4`, discardedKey, w.ID, c.Run, c.artifact)

	tx.Run(`update artifacts set superseded_by = 0 where workspace = $1 and superseded_by in (select id from artifacts as late where late.workspace = $1 and late.run = $2 and late.id > $3)`, w.ID, c.Run, c.artifact)
	tx.Run(`update artifacts set discarded = 1 where workspace = $1 and run = $2 and id > $3`, w.ID, c.Run, c.artifact)
}

// review ends the review of a workspace with a decision of its owner. It returns an *Error if the
// workspace needs no review.
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

// beginReview locks a workspace that needs a review. It also returns the run that left it partly
// changed, and the last checkpoint of that run.
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

// endReview ends the review of a workspace, stores the workspace and withdraws the info about the
// review.
func endReview(tx *store.Tx, w *Workspace, r record.Run, kind string, now time.Time) error {
	w.Review = 0
	put(tx, *w)
	inbox.WithdrawInfos(tx, r.ID, fmt.Sprintf("%s%d/", Call, w.ID), now)
	return addEvent(tx, Author{}, r, *w, now, kind, nil)
}

// Runs returns the stored runs that worked in a workspace, newest first.
func (l *Workspaces) Runs(ctx context.Context, workspace int64, limit int) ([]record.Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where workspace = cast($1 as bigint) and workspace <> 0 order by id desc limit $2`, workspace, limit)
}
