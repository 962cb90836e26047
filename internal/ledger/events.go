package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"rouse/internal/ledger/store"
)

// maxEventText keeps an event small, in characters: the whole text is in its step.
const maxEventText = 200

// EventProgress is the kind of the event with which a skill says how far its run is: {value, text}, of which the value is 1 when all is done.
const EventProgress = "skill.progress"

// addEvent appends an event; a run's events are numbered from 1.
func addEvent(tx *store.Tx, e Event, data map[string]any) error {
	text := string(e.Data)
	if data != nil {
		raw, err := json.Marshal(data)
		if err != nil {
			return fmt.Errorf("the event %s cannot be recorded: %w", e.Kind, err)
		}
		text = string(raw)
	}
	text = tx.RedactJSON(text)

	// Events of no run are not numbered: seq is 0.
	if e.Run == 0 {
		tx.Run(`insert into events (job, at, kind, data) values ($1, $2, $3, $4)`, e.Job, store.Millis(e.At), e.Kind, text)
		return nil
	}

	// The cast hides the value from SQLite's planner, which inspects it because of a partial index
	// and would then plan the statement again on every call. And values(…) with a subquery: an
	// insert … select from the same table would be copied to a temporary one first.
	tx.Run(`insert into events (run, seq, job, at, kind, data)
		values ($1, (select coalesce(max(seq), 0) + 1 from events where run = cast($1 as bigint) and run <> 0), $2, $3, $4, $5)`,
		e.Run, e.Job, store.Millis(e.At), e.Kind, text)
	return nil
}

// addEventsOf appends events of one run and job.
func addEventsOf(tx *store.Tx, run int64, job string, events []Event) error {
	for _, e := range events {
		e.Run, e.Job = run, job
		if err := addEvent(tx, e, nil); err != nil {
			return err
		}
	}
	return nil
}

// AppendEvents records what happened outside the ledger's own operations.
func (l *Ledger) AppendEvents(ctx context.Context, events ...Event) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, e := range events {
			if e.At.IsZero() {
				e.At = l.Now()
			}
			if err := addEvent(tx, e, nil); err != nil {
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
	return store.List(store.Reads(ctx, l.DB), eventFields, query, args...)
}

const eventColumns = `id, run, seq, job, at, kind, data`

func eventFields(e *Event) []any {
	return []any{&e.ID, &e.Run, &e.Seq, &e.Job, store.Time(&e.At), &e.Kind, store.Raw(&e.Data)}
}

// eventsQuery asks for the events that fit a filter. Those of a run are numbered in the order of their ids.
func eventsQuery(f EventFilter) (string, []any) {
	query, order := `select `+eventColumns+` from events where id > $1`, `id`
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
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), eventFields, `select `+eventColumns+` from events where run = cast($1 as bigint) and run <> 0 and kind = $2 order by seq desc limit 1`, run, kind))
}
