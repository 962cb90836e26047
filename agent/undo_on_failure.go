package agent

import (
	"context"
	"fmt"
	"slices"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// undoOnFailure undoes what a run of a job with UndoOnFailure wrote, files and database, when
// it ended in neither success, nothing nor partial. A run that waits, or that a stop of the
// daemon cut off, goes on later and keeps what it wrote. How that went is added to what the
// run's record says of its end.
func (r *Runner) undoOnFailure(ctx context.Context, t *attempt, res ledger.Result) ledger.Result {
	failed := []domain.Outcome{domain.OutcomeError, domain.OutcomeTimeout, domain.OutcomeBudget, domain.OutcomeCancelled}
	if res.Wait != nil || !slices.Contains(failed, res.Outcome) {
		return res
	}
	// The work is done, and its branch waits to be sent or brought back: an undo would discard it.
	if res.Kind == kindCheckout || res.Kind == kindPush {
		return res
	}
	return r.undoIfConfigured(ctx, &t.task, res)
}

// OnFinalize undoes what a run of such a job wrote that no attempt ends any more: it was cut
// off for the last time, nobody answered it, or the host broke.
func (r *Runner) OnFinalize(ctx context.Context, run ledger.Run, res ledger.Result) ledger.Result {
	t, err := r.task(run)
	if err != nil {
		return res // the job is gone, and with it what it wanted
	}
	return cleanResult(r.undoIfConfigured(ctx, t, res), t.redactor())
}

// undoIfConfigured undoes a run if its job wants that, and says so in the result.
func (r *Runner) undoIfConfigured(ctx context.Context, t *task, res ledger.Result) ledger.Result {
	if !t.job.UndoOnFailure {
		return res
	}

	spec := UndoOptions{By: agentdb.By{Actor: "system"}, Reason: "undo_on_failure"}
	// A run that took too long has no context left, and is undone all the same.
	out, err := r.Undo(context.WithoutCancel(ctx), t.run, spec)
	say := ""
	switch {
	case err != nil:
		say = fmt.Sprintf("what it wrote into %s could not be undone: %v", out.places(), err)
	case !out.Any():
		return res
	case !out.Done:
		say = fmt.Sprintf("what it wrote into %s stays, because %d later changes stand in the way; see rouse undo %d --dry-run", out.places(), out.inTheWay(), t.run.ID)
	default:
		say = fmt.Sprintf("what it wrote into %s was undone", out.places())
	}

	if res.Error != "" {
		res.Error += "; "
	}

	res.Error += say
	return res
}

// places are the places that a run wrote into.
func (u UndoResult) places() string {
	switch {
	case len(u.Files) == 0:
		return "the database"
	case u.Database.Changes == 0:
		return "files"
	}
	return "files and the database"
}

// inTheWay counts what came later.
func (u UndoResult) inTheWay() int64 {
	n := u.Database.ConflictCount
	for _, f := range u.Files {
		if f.Why != "" {
			n++
		}
	}
	return n
}
