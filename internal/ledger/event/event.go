// Package event has everything that happened, in order: it appends events to the record, lists them, and knows all their kinds.
package event

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Progress is the kind of the event with which a skill says how far its run is: {value, text}, of which the value is 1 when all is done.
const Progress = "skill.progress"

// Events has everything that happened, in order.
type Events struct{ DB *store.DB }

// Append records what happened outside the ledger's own operations.
func (l *Events) Append(ctx context.Context, events ...record.Event) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, e := range events {
			if e.At.IsZero() {
				e.At = l.DB.Now()
			}
			if err := record.AddEvent(tx, e, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// List lists events, oldest first.
func (l *Events) List(ctx context.Context, f Filter) ([]record.Event, error) {
	switch {
	case f.Limit == 0:
		f.Limit = 1000
	case f.Limit < 0:
		f.Limit = math.MaxInt32
	}

	query, args := eventsQuery(f)
	return store.List(store.Reads(ctx, l.DB), record.EventFields, query, args...)
}

// eventsQuery asks for the events that fit a filter. Those of a run are numbered in the order of their ids.
func eventsQuery(f Filter) (string, []any) {
	query, order := `select `+record.EventColumns+` from events where id > $1`, `id`
	args := []any{f.After, f.Limit}
	if f.Run != 0 {
		args = append(args, f.Run)
		// The cast keeps the planner from looking at the value, as in record.AddEvent.
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

// Newest is the id of the newest event, 0 when there is none.
func (l *Events) Newest(ctx context.Context) (int64, error) {
	return store.Value[int64](store.Reads(ctx, l.DB), `select coalesce(max(id), 0) from events`)
}

// Last is the last event of a run of a kind; false when there is none.
func (l *Events) Last(ctx context.Context, run int64, kind string) (record.Event, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), record.EventFields, `select `+record.EventColumns+` from events where run = cast($1 as bigint) and run <> 0 and kind = $2 order by seq desc limit 1`, run, kind))
}

// Between lists the last events of some kinds that concern no run: those of a job, or
// those of no job (""), oldest first.
func (l *Events) Between(ctx context.Context, job string, from, to time.Time, limit int, kinds ...string) ([]record.Event, error) {
	args := []any{job, store.Millis(from), store.Millis(to), limit}
	for _, k := range kinds {
		args = append(args, k)
	}

	out, err := store.List(store.Reads(ctx, l.DB), record.EventFields, eventsBetween(len(kinds)), args...)
	slices.Reverse(out)
	return out, err
}

// eventsBetween asks for events of so many kinds.
func eventsBetween(kinds int) string {
	return `select ` + record.EventColumns + ` from events where run = 0 and job = $1 and at >= $2 and at <= $3 and kind in (` + record.Places(5, kinds) + `)
		order by at desc, id desc limit $4`
}

// Each calls do with all events that fit a filter, oldest first, until do returns an error.
func Each(ctx context.Context, l *Events, f Filter, do func(record.Event) error) error {
	f.Limit = 500 // of a page
	for {
		events, err := l.List(ctx, f)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := do(e); err != nil {
				return err
			}
			f.After = e.ID
		}
		if len(events) < f.Limit {
			return nil
		}
	}
}

// Poll calls do at once and after changes of the ledger, at most once per interval, until ctx ends.
func Poll(ctx context.Context, db *store.DB, every time.Duration, do func()) {
	for ctx.Err() == nil {
		changed := db.Changed() // before do, so that no change is missed
		do()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
		}
	}
}

// Filter selects events, oldest first.
type Filter struct {
	Run   int64
	Job   string
	After int64
	Since time.Time // zero means no limit
	Limit int       // zero means 1000, a negative limit means no limit
}
