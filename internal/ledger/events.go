package ledger

import (
	"context"
	"fmt"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// EventProgress is the kind of the event with which a skill says how far its run is: {value, text}, of which the value is 1 when all is done.
const EventProgress = "skill.progress"

// AppendEvents records what happened outside the ledger's own operations.
func (l *Ledger) AppendEvents(ctx context.Context, events ...Event) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, e := range events {
			if e.At.IsZero() {
				e.At = l.Now()
			}
			if err := record.AddEvent(tx, e, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// Events lists events, oldest first.
func (l *Ledger) Events(ctx context.Context, f EventFilter) ([]Event, error) {
	if f.Limit <= 0 {
		f.Limit = 1000
	}

	query, args := eventsQuery(f)
	return store.List(store.Reads(ctx, l.DB), record.EventFields, query, args...)
}

// eventsQuery asks for the events that fit a filter. Those of a run are numbered in the order of their ids.
func eventsQuery(f EventFilter) (string, []any) {
	query, order := `select `+record.EventColumns+` from events where id > $1`, `id`
	args := []any{f.After, f.Limit}
	if f.Run != 0 {
		args = append(args, f.Run)
		// The cast keeps the planner from looking at the value, as in addEvent.
		query += fmt.Sprintf(` and run = cast($%d as bigint) and run <> 0`, len(args))
		order = `seq`
	}

	if f.Job != "" {
		args = append(args, f.Job)
		query += fmt.Sprintf(` and job = $%d`, len(args))
	}
	if !f.Since.IsZero() {
		args = append(args, store.Millis(f.Since))
		query += fmt.Sprintf(` and at >= $%d`, len(args))
	}
	return query + ` order by ` + order + ` limit $2`, args
}

// NewestEvent is the id of the newest event, 0 when there is none.
func (l *Ledger) NewestEvent(ctx context.Context) (int64, error) {
	return store.Value[int64](store.Reads(ctx, l.DB), `select coalesce(max(id), 0) from events`)
}

// LastEvent is the last event of a run of a kind; false when there is none.
func (l *Ledger) LastEvent(ctx context.Context, run int64, kind string) (Event, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), record.EventFields, `select `+record.EventColumns+` from events where run = cast($1 as bigint) and run <> 0 and kind = $2 order by seq desc limit 1`, run, kind))
}
