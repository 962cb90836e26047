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

// FireWakes decides about wakes that are due, by their ids. A wake is deleted in the
// transaction that queues its run. lanes is how many runs may execute at once; 0: no limit.
func (l *Ledger) FireWakes(ctx context.Context, now time.Time, lanes int, ids ...int64) ([]wake.Decision, error) {
	out := make([]wake.Decision, len(ids))
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		pauses, err := pause.At(tx, now)
		if err != nil {
			return err
		}

		// Counted once for the batch: what it queues is not running yet.
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

// fireWake locks the wake's row for this transaction: of two processes the second waits,
// and finds it gone or deferred.
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
	// A wake that came too early keeps its time, and there is nothing to write.
	case d.Decision == wake.Deferred && !d.At.Equal(s.At):
		tx.Run(`update slots set at = $1, deferred = $2 where id = $3`, store.Millis(d.At), store.Flag(d.Wake.Deferred), s.ID)
		err = record.AddEvent(tx, Event{Job: s.Job, At: now, Kind: "slot.later"}, map[string]any{"agent": s.Agent, "at": d.At.UTC(), "reason": d.Reason})
	}

	return d, err
}

// enqueueWake turns a wake into a run: one to be executed, or one that says why it was not.
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
		// The run exists only to say why nothing ran. It was never started, so finish needs no more of it.
		err = finish(tx, db, Run{ID: a.Run, Trigger: domain.TriggerSelf}, Result{Outcome: domain.OutcomeCancelled, Error: d.Reason}, now)
	}

	return a.Run, err
}

// countRunning repeats the condition of the partial index runs_unfinished: SQLite uses such an
// index only where it can see that the condition holds.
const countRunning = `select count(*) from runs where state = 'running' and state <> 'finished'`

// lastWake ignores runs that were dropped or cancelled before they started: they woke nobody.
const lastWake = `select queued_at from runs where agent = $1 and triggered_by = 'self' and (state <> 'finished' or started_at <> 0) order by id desc limit 1`
