package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"rouse/internal/ledger/wake"
)

// FireWakes decides about due wakes, by their ids. The transaction that queues the run of a wake
// deletes the wake. lanes limits the running runs; 0 means no limit.
func (l *Ledger) FireWakes(ctx context.Context, now time.Time, lanes int, ids ...int64) ([]wake.Decision, error) {
	out := make([]wake.Decision, len(ids))
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		pauses, err := pause.At(tx, now)
		if err != nil {
			return err
		}

		// Count once for the batch: runs queued by it are not running yet.
		running, err := store.Value[int](tx, countRunning)
		if err != nil {
			return err
		}

		for i, id := range ids {
			if out[i], err = fireWake(tx, l.DB, now, id, wake.State{Pauses: pauses, Saturated: lanes > 0 && running >= lanes}); err != nil {
				return err
			}
		}

		return nil
	})

	return out, err
}

// fireWake decides about one wake. It locks the row of the wake: a second process waits, and finds
// the wake gone or deferred.
func fireWake(tx *store.Tx, db *store.DB, now time.Time, id int64, st wake.State) (wake.Decision, error) {
	s, planned, err := store.OrFalse(store.One(tx, wake.Fields, `select `+wake.Columns+` from slots where id = $1`+db.ForUpdate, id))
	if err != nil || !planned {
		return wake.Decision{Wake: wake.Wake{ID: id}, Decision: wake.Vanished}, err
	}

	if st.LastWake, err = store.OrZero(store.TimeOf(tx, lastWake, s.Agent)); err != nil {
		return wake.Decision{}, err
	}
	d := wake.Decide(now, s, st)
	switch {
	case d.Decision == wake.Run || d.Decision == wake.Dropped:
		d.Run, err = enqueueWake(tx, db, now, d)
	// A wake that came too early keeps its time, so no row changes.
	case d.Decision == wake.Deferred && !d.At.Equal(s.At):
		tx.Run(`update slots set at = $1, deferred = $2 where id = $3`, store.Millis(d.At), store.Flag(d.Wake.Deferred), s.ID)
		err = record.AddEvent(tx, Event{Job: s.Job, At: now, Kind: "slot.later"}, map[string]any{"agent": s.Agent, "at": d.At.UTC(), "reason": d.Reason})
	}

	return d, err
}

// enqueueWake replaces a wake with its run. The run of a dropped wake is finished at once with the
// reason.
func enqueueWake(tx *store.Tx, db *store.DB, now time.Time, d wake.Decision) (int64, error) {
	s := d.Wake
	of := TriggerDetail{Source: "slot", Wake: &WakeDetail{ID: s.ID, Instructions: s.Instructions, ContextViews: s.ContextViews,
		ScheduledBy: s.ScheduledBy, Planned: s.At.UTC(), Asked: s.CreatedAt.UTC(), AskedBy: s.Run, Job: s.Job, Depth: s.Depth}}
	detail, err := json.Marshal(of)
	if err != nil {
		return 0, err
	}

	a, err := insertRun(tx, now, Request{Agent: s.Agent, Trigger: domain.TriggerSelf, Detail: of, ScheduledAt: s.At}, fmt.Sprintf("slot/%d", s.ID), string(detail))
	if err != nil {
		return 0, err
	}
	tx.Run(`delete from slots where id = $1`, s.ID)

	if d.Decision == wake.Dropped {
		// The run only records the reason. It never started, so finish needs no other fields.
		err = finish(tx, db, Run{ID: a.Run, Trigger: domain.TriggerSelf}, Result{Outcome: domain.OutcomeCancelled, Error: d.Reason}, now)
	}

	return a.Run, err
}

// countRunning repeats the condition of the partial index runs_unfinished, because SQLite uses such
// an index only if the query implies its condition.
const countRunning = `select count(*) from runs where state = 'running' and state <> 'finished'`

// lastWake selects the last wake of an agent. It ignores runs that were dropped or cancelled before
// they started.
const lastWake = `select queued_at from runs where agent = $1 and triggered_by = 'self' and (state <> 'finished' or started_at <> 0) order by id desc limit 1`
