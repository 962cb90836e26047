// Package event appends events to the record, lists them, and describes their kinds.
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

// Progress is the kind of event with which a skill reports the progress of its run. Its data has
// the fields value and text. A value of 1 means finished.
const Progress = "skill.progress"

// Events stores all events in order.
type Events struct{ DB *store.DB }

// Append records events that do not come from the ledger's own operations.
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

// List returns the events that match a filter, oldest first.
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

// eventsQuery returns the query for a filter and its arguments. Events of one run are ordered by
// seq, which follows the order of their IDs.
func eventsQuery(f Filter) (string, []any) {
	query, order := `select `+record.EventColumns+` from events where id > $1`, `id`
	args := []any{f.After, f.Limit}
	if f.Run != 0 {
		args = append(args, f.Run)
		// The cast keeps the query planner from using the value, as in record.AddEvent.
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

// Newest returns the ID of the newest event, or 0 if there is none.
func (l *Events) Newest(ctx context.Context) (int64, error) {
	return store.Value[int64](store.Reads(ctx, l.DB), `select coalesce(max(id), 0) from events`)
}

// Last returns the last event of a kind in a run, and reports whether there is one.
func (l *Events) Last(ctx context.Context, run int64, kind string) (record.Event, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), record.EventFields, `select `+record.EventColumns+` from events where run = cast($1 as bigint) and run <> 0 and kind = $2 order by seq desc limit 1`, run, kind))
}

// Between returns the last events of a job that have one of the kinds and belong to no run, oldest
// first. If job is empty, it returns events that belong to no job either.
func (l *Events) Between(ctx context.Context, job string, from, to time.Time, limit int, kinds ...string) ([]record.Event, error) {
	args := []any{job, store.Millis(from), store.Millis(to), limit}
	for _, k := range kinds {
		args = append(args, k)
	}

	out, err := store.List(store.Reads(ctx, l.DB), record.EventFields, eventsBetween(len(kinds)), args...)
	slices.Reverse(out)
	return out, err
}

// eventsBetween returns the query of Between for a number of kinds.
func eventsBetween(kinds int) string {
	return `select ` + record.EventColumns + ` from events where run = 0 and job = $1 and at >= $2 and at <= $3 and kind in (` + record.Places(5, kinds) + `)
		order by at desc, id desc limit $4`
}

// Each calls do for every event that matches a filter, oldest first, until do returns an error.
func Each(ctx context.Context, l *Events, f Filter, do func(record.Event) error) error {
	f.Limit = 500 // per page
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

// Poll calls do immediately and then after each change of the ledger, until ctx is done. It calls
// do at most once per interval.
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

// Filter selects events.
type Filter struct {
	Run   int64
	Job   string
	After int64
	Since time.Time // zero means no limit
	Limit int       // 0 or less means 1000
}
