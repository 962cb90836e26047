package ledger

import (
	"context"
	"encoding/json"
	"fmt"

	"rouse/internal/ledger/store"
	"rouse/internal/ledger/workspace"
)

// RetryReview restores a workspace to the last checkpoint of the run that left it half changed. It
// also queues a run that begins from that checkpoint. The workspace then needs no review.
func (l *Ledger) RetryReview(ctx context.Context, id int64) (Run, error) {
	now := l.Now()
	run, err := store.InTx(ctx, l.DB, func(tx *store.Tx) (int64, error) {
		w, r, last, err := workspace.BeginRetry(tx, l.DB, id, now)
		if err != nil {
			return 0, err
		}

		var d TriggerDetail
		if err := json.Unmarshal(r.Detail, &d); err != nil {
			return 0, fmt.Errorf("the details of run %d are damaged: %w", r.ID, err)
		}
		a, err := insertRun(tx, w.UpdatedAt, Request{Job: r.Job, Agent: r.Agent, Trigger: r.Trigger, Detail: d, ScheduledAt: r.ScheduledAt}, "", string(r.Detail))
		if err != nil {
			return 0, err
		}

		// The checkpoint may contain content that the first run had read, so the new run inherits
		// its taint.
		if _, err := tx.Exec(`update runs set workspace = $1, checkpoint = $2, taint = $3 where id = $4`, w.ID, last.ID, r.Taint, a.Run); err != nil {
			return 0, err
		}
		return a.Run, workspace.EndRetry(tx, w, r, now)
	})
	if err != nil {
		return Run{}, err
	}

	return l.Runs.Get(ctx, run)
}
