package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"rouse/agent/model"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
)

// undoFailed takes back what a run of a job with UndoOnFailure wrote into the database, when
// it ended in neither success, nothing nor partial. A run that waits, or that a stop of the
// daemon cut off, goes on later and keeps what it wrote. How that went is added to what the
// run's record says of its end.
func (r *Runner) undoFailed(ctx context.Context, run ledger.Run, t task, res ledger.Result) ledger.Result {
	failed := []ledger.Outcome{ledger.OutcomeError, ledger.OutcomeTimeout, ledger.OutcomeBudget, ledger.OutcomeCancelled}
	if !t.job.UndoOnFailure || !t.agent.Database || res.Wait != nil || !slices.Contains(failed, res.Outcome) {
		return res
	}
	ctx = context.WithoutCancel(ctx) // a run that took too long is taken back all the same
	out, err := r.undo(ctx, run)
	say := ""
	switch {
	case err != nil:
		say = fmt.Sprintf("what it wrote into the database could not be taken back: %v", err)
	case out.Changes == 0:
		return res
	case !out.Done:
		say = fmt.Sprintf("what it wrote into the database stays, because %d later changes stand in the way; see rouse undo %d --dry-run", out.InTheWay, run.ID)
	default:
		say = "what it wrote into the database was taken back"
	}
	if res.Error != "" {
		res.Error += "; "
	}
	res.Error += say
	return res
}

func (r *Runner) undo(ctx context.Context, run ledger.Run) (agentdb.Undone, error) {
	db, release, err := r.databases.Get(ctx, run.Agent)
	if err != nil {
		return agentdb.Undone{}, err
	}
	defer release()
	out, err := db.Undo(ctx, agentdb.By{Actor: "system"}, agentdb.UndoSpec{Run: run.ID})
	if err != nil || out.Changes == 0 {
		return out, err
	}
	data, err := json.Marshal(map[string]any{"by": "undo_on_failure", "done": out.Done, "changes": out.Changes, "conflicts": out.InTheWay})
	if err != nil {
		return out, err
	}
	return out, r.ledger.AppendEvents(ctx, ledger.Event{Run: run.ID, Job: run.Job, Kind: "run.undone", Data: data})
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
func (h *history) without(undone time.Time) error {
	if undone.IsZero() {
		return nil
	}
	for key, at := range h.wrote {
		if !at.After(undone) {
			delete(h.calls, key)
		}
	}
	if len(h.messages) == 0 {
		return nil
	}
	if err := h.closePending(); err != nil {
		return err
	}
	h.messages = append(h.messages, model.Message{Role: model.RoleUser,
		Text: "What this run had written into the database until " + undone.Format("2006-01-02 15:04:05 MST") + " was taken back: the results of those calls do not hold any more. Look before you go on, and write anew what is needed."})
	return nil
}
