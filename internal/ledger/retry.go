package ledger

import (
	"context"
	"encoding/json"
	"fmt"

	"rouse/internal/ledger/store"
	"rouse/internal/ledger/workspace"
)

// RetryReview puts a workspace back to the last checkpoint of the run that left it half changed, and queues a run that begins from
// that checkpoint. The workspace needs no review then.
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

		// What the first run had read is in the checkpoint.
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
