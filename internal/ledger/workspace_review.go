package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"strings"
	"time"

	"rouse/internal/domain"
)

// CallWorkspace begins the Call of an info that says that a workspace needs a review.
const CallWorkspace = "workspace/"

// EnterWorkspace makes a workspace the one that an attempt's run works in, and returns it. A checkpoint of before
// the run is kept, the first time. The error is a *BlockedError while the workspace is paused, archived or needs a review.
func (l *Ledger) EnterWorkspace(ctx context.Context, a Attempt, id int64) (Workspace, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Workspace, error) {
		r, err := record.CheckFence(tx, l.DB, a)
		if err != nil {
			return Workspace{}, err
		}
		w, err := l.lockWorkspace(tx, id)
		switch {
		case err != nil:
			return w, err
		case w.Agent != r.Agent:
			return w, fmt.Errorf("workspace %d is %w", id, ErrNotFound)
		case r.Workspace != 0 && r.Workspace != id:
			return w, wrongWorkspace("", "run %d works in workspace %d already", r.ID, r.Workspace)
		}

		if err := w.Blocked(); err != nil {
			return w, err
		}
		return w, beginIn(tx, r, w, l.Now())
	})
}

// beginIn keeps a checkpoint of a workspace from before a run changes it, once for the run.
func beginIn(tx *store.Tx, r Run, w Workspace, now time.Time) error {
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
	return addWorkspaceEvent(tx, Author{}, r, w, now, workspaceBegun, nil)
}

// requireReviews has their owner look at the workspaces that a run left half changed: it did not succeed (it
// is dirty), and it did something since its last checkpoint (it is partial) (OSL-30).
func (l *Ledger) requireReviews(tx *store.Tx, r Run, outcome domain.Outcome, now time.Time) error {
	if !outcome.Failed() && outcome != domain.OutcomeCancelled && outcome != domain.OutcomeInterrupted {
		return nil
	}

	touched, err := store.Values[int64](tx, `select distinct workspace from workspace_events where run = cast($1 as bigint) and run <> 0 order by workspace`, r.ID)
	if err != nil {
		return err
	}

	for _, id := range touched {
		w, err := l.lockWorkspace(tx, id)
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
		storeWorkspace(tx, w)
		if err := addWorkspaceEvent(tx, Author{}, r, w, now, workspaceReview, map[string]any{"outcome": outcome}); err != nil {
			return err
		}
		if err := addReviewInfo(tx, r, w, outcome, now); err != nil {
			return err
		}
	}

	return nil
}

// checkReview refuses what would have a run go on that left a workspace half changed.
func (l *Ledger) checkReview(tx *store.Tx, r Run) error {
	w, half, err := store.OrFalse(store.One(tx, workspaceFields, `select `+workspaceColumns+` from workspaces where review = $1 and review <> 0 order by id limit 1`, r.ID))
	if half {
		err = &BlockedError{w}
	}
	return err
}

// workspaceMarks are the events after which a workspace is in order, as a list of SQL.
const workspaceMarks = `'begun', 'checkpoint', 'acknowledged', 'discarded', 'retried'`

// discardedKey begins the key of a call whose writes were discarded, with the number of the write behind it.
const discardedKey = "discarded/"

// DiscardedCalls are the keys of the calls of a run whose writes to its workspace its owner has discarded, and that
// were not made again since: another attempt makes them again.
func (l *Ledger) DiscardedCalls(ctx context.Context, run int64) ([]string, error) {
	return store.Values[string](store.Reads(ctx, l.DB), `select distinct gone.key from (select substr(key, length(cast($1 as text) || id || '/') + 1) as key from workspace_events where run = cast($2 as bigint) and run <> 0 and key like cast($1 as text) || '%') as gone
		where not exists (select 1 from workspace_events as again where again.run = $2 and again.key = gone.key)`, discardedKey, run)
}

// leftPartial reports whether a run has changed a workspace, or anything outside while it worked in it, since
// it was last known to be in order.
func leftPartial(tx *store.Tx, r Run, w Workspace) (bool, error) {
	var mark, since int64
	if err := store.Scan(tx, []any{&mark, &since}, `select coalesce(max(id), 0), coalesce(max(at), 0) from workspace_events where workspace = $1 and run = cast($2 as bigint) and run <> 0
		and kind in (`+workspaceMarks+`)`, w.ID, r.ID); err != nil {
		return false, err
	}

	changes, err := store.Value[bool](tx, `select exists (select 1 from workspace_events where workspace = $1 and run = cast($2 as bigint) and run <> 0 and id > $3 and kind in ('changed', 'artifact'))`, w.ID, r.ID, mark)
	if err != nil || changes || r.Workspace != w.ID {
		return changes, err
	}

	// A call that failed to begin has changed nothing; of one that was cut off nobody knows.
	return store.Value[bool](tx, `select exists (select 1 from calls where run = $1 and started_at >= $2 and effect in ('write', 'external') and state in ('done', 'uncertain'))`, r.ID, since)
}

func addReviewInfo(tx *store.Tx, r Run, w Workspace, outcome domain.Outcome, now time.Time) error {
	return addInfo(tx, r, Question{
		Call:  fmt.Sprintf("%s%d/%d", CallWorkspace, w.ID, store.Millis(now)),
		Title: fmt.Sprintf("workspace %s needs a review", w.Name),
		Message: fmt.Sprintf("Run %d ended (%s) in the middle of its changes, so that no run works in this workspace of the skill %s until you have looked. As it is: rouse workspaces acknowledge %[4]d; "+
			"as it was at the last checkpoint: rouse workspaces discard %[4]d; once more from there: rouse workspaces retry %[4]d. See: rouse workspaces show %[4]d", r.ID, strings.ReplaceAll(string(outcome), "_", " "), w.Skill, w.ID),
	}, now)
}

// AcknowledgeReview accepts a workspace as a run left it.
func (l *Ledger) AcknowledgeReview(ctx context.Context, id int64) (Workspace, error) {
	return l.review(ctx, id, workspaceAcknowledged, func(tx *store.Tx, w *Workspace, _ Run, last Checkpoint) error {
		// What is accepted is in order from now on: a retry of the run begins with it.
		last.At, last.Phase, last.Role, last.State = w.UpdatedAt, w.Phase, w.Role, w.State
		return insertCheckpoint(tx, &last)
	})
}

// DiscardReview puts a workspace back to the last checkpoint of the run that left it half changed. What the run
// has added to its artifacts since is discarded; what it did outside of the workspace stays.
func (l *Ledger) DiscardReview(ctx context.Context, id int64) (Workspace, error) {
	return l.review(ctx, id, workspaceDiscarded, func(tx *store.Tx, w *Workspace, _ Run, last Checkpoint) error {
		restore(tx, w, last)
		return nil
	})
}

// RetryReview is DiscardReview followed by a new run, which begins from that checkpoint.
func (l *Ledger) RetryReview(ctx context.Context, id int64) (Run, error) {
	var run int64
	_, err := l.review(ctx, id, workspaceRetried, func(tx *store.Tx, w *Workspace, r Run, last Checkpoint) error {
		restore(tx, w, last)
		var d Detail
		if err := json.Unmarshal(r.Detail, &d); err != nil {
			return fmt.Errorf("the details of run %d are damaged: %w", r.ID, err)
		}

		a, err := insertRun(tx, w.UpdatedAt, Request{Job: r.Job, Agent: r.Agent, Trigger: r.Trigger, Detail: d, ScheduledAt: r.ScheduledAt}, "", string(r.Detail))
		if err != nil {
			return err
		}

		// What the first run had read is in the checkpoint.
		run = a.Run
		_, err = tx.Exec(`update runs set workspace = $1, checkpoint = $2, taint = $3 where id = $4`, w.ID, last.ID, r.Taint, run)
		return err
	})
	if err != nil {
		return Run{}, err
	}

	return l.Run(ctx, run)
}

// restore puts a workspace back to a checkpoint. The calls that wrote to it since may be made again: their keys are free.
func restore(tx *store.Tx, w *Workspace, c Checkpoint) {
	w.State, w.Phase, w.Role = c.State, c.Phase, c.Role
	tx.Run(`update workspace_events set key = cast($1 as text) || id || '/' || key where workspace = $2 and run = $3 and key <> '' and kind in ('changed', 'artifact', 'status')
		and id > (select coalesce(max(id), 0) from workspace_events as mark where mark.workspace = $2 and mark.run = $3 and mark.kind in (`+workspaceMarks+`))`, discardedKey, w.ID, c.Run)
	tx.Run(`update artifacts set key = cast($1 as text) || id || '/' || key where workspace = $2 and run = $3 and id > $4`, discardedKey, w.ID, c.Run, c.artifact)

	tx.Run(`update artifacts set superseded_by = 0 where workspace = $1 and superseded_by in (select id from artifacts as late where late.workspace = $1 and late.run = $2 and late.id > $3)`, w.ID, c.Run, c.artifact)
	tx.Run(`update artifacts set discarded = 1 where workspace = $1 and run = $2 and id > $3`, w.ID, c.Run, c.artifact)
}

// review ends the review of a workspace with what its owner has decided. The error is a *WorkspaceError when it needs none.
func (l *Ledger) review(ctx context.Context, id int64, kind string, decide func(tx *store.Tx, w *Workspace, r Run, last Checkpoint) error) (Workspace, error) {
	now := l.Now()
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Workspace, error) {
		w, err := l.lockWorkspace(tx, id)
		if err != nil {
			return w, err
		}
		if w.Review == 0 {
			return w, wrongWorkspace("", "workspace %d (%s) needs no review", w.ID, w.Name)
		}

		r, err := store.One(tx, record.RunFields, `select `+record.RunColumns+` from runs where id = $1`, w.Review)
		if err != nil {
			return w, err
		}
		last, err := lastCheckpointIn(tx, r.ID, w.ID)
		if err != nil {
			return w, err
		}

		w.LockVersion++
		w.UpdatedAt = store.Instant(store.Millis(now))
		if err := decide(tx, &w, r, last); err != nil {
			return w, err
		}

		w.Review = 0
		storeWorkspace(tx, w)
		tx.Run(`update inbox set state = 'withdrawn', closed_at = $1 where run = $2 and kind = 'info' and state = 'open' and call like $3`, store.Millis(now), r.ID, fmt.Sprintf("%s%d/%%", CallWorkspace, w.ID))
		return w, addWorkspaceEvent(tx, Author{}, r, w, now, kind, nil)
	})
}

// WorkspaceRuns lists the runs that worked in a workspace, newest first, as far as they are kept.
func (l *Ledger) WorkspaceRuns(ctx context.Context, workspace int64, limit int) ([]Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where workspace = cast($1 as bigint) and workspace <> 0 order by id desc limit $2`, workspace, limit)
}
