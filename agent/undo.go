package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"rouse/agent/model"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// undoFailed takes back what a run of a job with UndoOnFailure wrote, files and database, when
// it ended in neither success, nothing nor partial. A run that waits, or that a stop of the
// daemon cut off, goes on later and keeps what it wrote. How that went is added to what the
// run's record says of its end.
func (r *Runner) undoFailed(ctx context.Context, run ledger.Run, t task, res ledger.Result) ledger.Result {
	failed := []domain.Outcome{domain.OutcomeError, domain.OutcomeTimeout, domain.OutcomeBudget, domain.OutcomeCancelled}
	if res.Wait != nil || !slices.Contains(failed, res.Outcome) {
		return res
	}
	return r.withdraw(ctx, run, t, res)
}

// Closing takes back what a run of such a job wrote that no attempt ends any more: it was cut
// off for the last time, nobody answered it, or the host broke.
func (r *Runner) Closing(ctx context.Context, run ledger.Run, res ledger.Result) ledger.Result {
	d, err := parseDetail(run)
	if err != nil {
		return res
	}

	t, err := r.plan.Load().find(run, d)
	if err != nil {
		return res // the job is gone, and with it what it wanted
	}
	return cleanResult(r.withdraw(ctx, run, t, res), redactor(r.plan.Load().Secrets))
}

// withdraw takes a run back if its job wants that, and says so in the result.
func (r *Runner) withdraw(ctx context.Context, run ledger.Run, t task, res ledger.Result) ledger.Result {
	if !t.job.UndoOnFailure {
		return res
	}

	spec := UndoSpec{By: agentdb.By{Actor: "system"}, Reason: "undo_on_failure"}
	// A run that took too long is taken back all the same.
	out, err := r.Undo(context.WithoutCancel(ctx), run, spec)
	say := ""
	switch {
	case err != nil:
		say = fmt.Sprintf("what it wrote into %s could not be taken back: %v", out.where(), err)
	case !out.Any():
		return res
	case !out.Done:
		say = fmt.Sprintf("what it wrote into %s stays, because %d later changes stand in the way; see rouse undo %d --dry-run", out.where(), out.inTheWay(), run.ID)
	default:
		say = fmt.Sprintf("what it wrote into %s was taken back", out.where())
	}

	if res.Error != "" {
		res.Error += "; "
	}

	res.Error += say
	return res
}

// where are the places that a run wrote into.
func (u Undone) where() string {
	switch {
	case len(u.Files) == 0:
		return "the database"
	case u.Database.Changes == 0:
		return "files"
	}
	return "files and the database"
}

// inTheWay counts what came later.
func (u Undone) inTheWay() int64 {
	n := u.Database.InTheWay
	for _, f := range u.Files {
		if f.Why != "" {
			n++
		}
	}
	return n
}

// takenBack puts into the scene what was taken back of earlier attempts.
func (r *Runner) takenBack(ctx context.Context, run ledger.Run, a ledger.Attempt, t task, s *scene) (err error) {
	if a.Number == 1 {
		return nil
	}

	calls, err := r.ledger.Calls(ctx, run.ID)
	if err != nil {
		return err
	}
	if s.Rewrites, err = r.rewrites(ctx, run, calls); err != nil {
		return err
	}

	s.Undone, err = r.undoneAt(ctx, run, a, t)
	return err
}

// undoneAt is when what earlier attempts wrote was last taken back; zero when it was not. The
// database itself says so, and no crash can part the two.
func (r *Runner) undoneAt(ctx context.Context, run ledger.Run, a ledger.Attempt, t task) (time.Time, error) {
	if a.Number == 1 || !t.agent.Database {
		return time.Time{}, nil
	}

	db, release, err := r.databases.Get(ctx, run.Agent)
	if err != nil {
		return time.Time{}, err
	}
	defer release()

	return db.UndoneAt(ctx, run.ID)
}

// without leaves out what was written before a run was taken back: another attempt does it
// anew, and a model that goes on from its transcript is told.
func (h *history) without(s scene) error {
	if s.Undone.IsZero() && len(s.Rewrites) == 0 {
		return nil
	}

	said := "What this run had written into files was taken back"
	if !s.Undone.IsZero() {
		said = "What this run had written into the database until " + s.Undone.Format("2006-01-02 15:04:05 MST") + " was taken back"
		if len(s.Rewrites) > 0 {
			said += ", and what it had written into files"
		}

		for key, at := range h.wrote {
			if !at.After(s.Undone) {
				delete(h.calls, key)
			}
		}
	}

	for _, key := range s.Rewrites {
		delete(h.calls, key)
	}

	if len(h.messages) == 0 {
		return nil
	}
	if err := h.closePending(); err != nil {
		return err
	}

	h.messages = append(h.messages, model.Message{Role: model.RoleUser,
		Text: said + ": the results of those calls do not hold any more. Look before you go on, and write anew what is needed."})
	return nil
}
