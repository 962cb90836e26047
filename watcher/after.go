package watcher

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"

	"rouse/internal/ledger/claim"
	"rouse/internal/nofollow"
)

const (
	movers = 8 // files that are moved concurrently
)

// ApplyAfterActions moves, deletes or leaves the files of finished runs. It is for a process that
// does not watch. watches holds the watches of all jobs. If the job of a file has no watch, the
// file stays in place. ApplyAfterActions returns an error if a watch is invalid or a result cannot
// be recorded.
func ApplyAfterActions(ctx context.Context, o Options, watches []Watch) error {
	watches, err := validated(watches)
	if err != nil {
		return err
	}
	w := newWatcher(o)
	w.folders = w.foldersOf(watches)
	return w.applyAfterActions(ctx)
}

// applyAfterActions moves, deletes or leaves the files of runs that have finished.
func (w *Watcher) applyAfterActions(ctx context.Context) error {
	// Before the first Set no watch is known, and every file would be left in place for good.
	w.mu.Lock()
	known := w.folders != nil
	w.mu.Unlock()

	for limit := maxPerTx; known && ctx.Err() == nil; {
		due, err := w.ledger.Claims.PendingAfterMoves(ctx, limit)
		if err != nil {
			return err
		}
		read := len(due)
		due = w.own(due)
		if err := w.applyConcurrently(ctx, due); err != nil {
			return err
		}
		if read < limit {
			break
		}
		if len(due) == 0 { // the files of other nodes come first
			limit *= 2
		}
	}

	return nil
}

// own returns the files that this node handles.
func (w *Watcher) own(due []claim.Status) []claim.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(due, func(c claim.Status) bool { return w.folders[c.Job] == nil && w.elsewhere(c.Job) })
}

// applyConcurrently handles several files at a time, so that the ledger can commit their results
// together.
func (w *Watcher) applyConcurrently(ctx context.Context, due []claim.Status) error {
	errs := make([]error, min(movers, len(due)))
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			for j := i; j < len(due) && errs[i] == nil; j += movers {
				errs[i] = w.applyAfterAction(ctx, due[j])
			}
		})
	}

	group.Wait()
	return errors.Join(errs...)
}

// applyAfterAction handles one file. It may be called again for the same file after a crash between
// the move and its record.
func (w *Watcher) applyAfterAction(ctx context.Context, c claim.Status) error {
	w.mu.Lock()
	f := w.folders[c.Job]
	w.mu.Unlock()
	if f == nil {
		state := claim.AfterLeft
		if c.Outcome == "" {
			state = claim.AfterNone
		}
		_, err := w.ledger.Claims.FinishAfterMove(ctx, c, state, c.Dest, "")
		return err
	}

	state, dest, note, failure := w.mover.Apply(ctx, f.afterRules(), c)
	if err := ctx.Err(); err != nil {
		return err
	}
	if ended, err := w.ledger.Claims.FinishAfterMove(ctx, c, state, dest, note); err != nil || !ended {
		return err // not ended: the run was retried in the meantime, so another outcome decides
	}

	if !f.moves.noteAfterAction(filepath.FromSlash(c.Path), failure) {
		return nil
	}

	w.log.Warn("a file could not be dealt with after its run; it is tried again at the next scan", "job", c.Job, "run", c.Run, "path", c.Path, "error", failure)
	if _, ok := errors.AsType[*nofollow.LinkError](failure); ok {
		f.event(ctx, linkKind, c.Run, map[string]any{"path": c.Path, "error": note})
	}
	return nil
}
