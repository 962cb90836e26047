package ledger

import (
	"context"
	"database/sql"
	"errors"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"slices"
	"time"
)

// OccurrencesAround lists the last instants of a job before a time and the first from it
// on, oldest first.
func (l *Ledger) OccurrencesAround(ctx context.Context, job string, at time.Time, before, after int) ([]Occurrence, error) {
	out, err := store.List(store.Reads(ctx, l.DB), occurrenceFields, rowsBefore, job, store.Millis(at), before)
	if err != nil {
		return nil, err
	}

	// The query finds the nearest ones first.
	slices.Reverse(out)
	later, err := store.List(store.Reads(ctx, l.DB), occurrenceFields, rowsFrom, job, store.Millis(at), after)
	return append(out, later...), err
}

const (
	rowsBefore = occurrences + ` where o.job = $1 and o.nominal < $2 order by o.nominal desc limit $3`
	rowsFrom   = occurrences + ` where o.job = $1 and o.nominal >= $2 order by o.nominal limit $3`

	othersBefore = `select ` + record.RunColumns + ` from runs where job = $1 and triggered_by not in ('schedule', 'backfill') and id >= $2 and id < $3 and queued_at >= $4 order by id desc limit $5`
	othersFrom   = `select ` + record.RunColumns + ` from runs where job = $1 and triggered_by not in ('schedule', 'backfill') and id >= $2 and id < $3 order by id limit $4`
	// Each end by itself: asked for together, they are found by a scan of all that lies between.
	runRange = `select coalesce((select min(id) from runs where job = $1), 0), coalesce((select max(id) from runs where job = $1), 0) + 1`
	runFrom  = `select id, queued_at from runs where job = $1 and id >= $2 order by id limit 1`

	anyRunRange = `select coalesce((select min(id) from runs), 0), coalesce((select max(id) from runs), 0) + 1`
	anyRunFrom  = `select id, queued_at from runs where id >= $1 order by id limit 1`
)

// OtherRunsAround lists the runs of a job that no schedule asked for: the last that were queued
// before a time and the first from it on, within a window whose bounds may be zero for none.
// They are in the order in which they were accepted.
func (l *Ledger) OtherRunsAround(ctx context.Context, job string, at time.Time, before, after int, from, to time.Time) ([]Run, error) {
	middle, err := l.firstRunFrom(ctx, job, at)
	if err != nil {
		return nil, err
	}

	// The window has a first id, so that the query does not go through all runs of schedules to the very
	// first one when there are fewer of the others than are wanted.
	first := int64(0)
	if !from.IsZero() {
		if first, err = l.firstRunFrom(ctx, job, from); err != nil {
			return nil, err
		}
	}

	out, err := store.List(store.Reads(ctx, l.DB), record.RunFields, othersBefore, job, first, middle, store.Millis(from), before)
	if err != nil {
		return nil, err
	}

	slices.Reverse(out)
	if after <= 0 {
		return out, nil
	}

	end := int64(1<<63 - 1)
	if !to.IsZero() {
		// The end of the window belongs to it.
		if end, err = l.firstRunFrom(ctx, job, to.Add(time.Millisecond)); err != nil {
			return nil, err
		}
	}

	later, err := store.List(store.Reads(ctx, l.DB), record.RunFields, othersFrom, job, middle, end, after)
	return append(out, later...), err
}

// firstRunFrom is the id of the first run of a job ("": of any) that was queued at a time or later, and one
// more than the last id when there is none. Ids grow with time, except where a clock was set
// back, so a search that halves what is left finds it in a few queries, however many runs there are.
func (l *Ledger) firstRunFrom(ctx context.Context, job string, at time.Time) (int64, error) {
	ends, from, of := runRange, runFrom, []any{job}
	if job == "" {
		ends, from, of = anyRunRange, anyRunFrom, nil
	}

	var low, high int64
	if err := store.Scan(store.Reads(ctx, l.DB), []any{&low, &high}, ends, of...); err != nil {
		return 0, err
	}

	// split says on which side of a run between low and high the answer lies.
	split := func(middle int64) error {
		var id, queued int64
		err := store.Scan(store.Reads(ctx, l.DB), []any{&id, &queued}, from, append(of, middle)...)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return err
		case err != nil || queued >= store.Millis(at):
			high = middle
		default:
			low = id + 1
		}
		return nil
	}

	// Most questions are about the latest runs: it goes back from them, in steps that double, before it halves.
	for step, first := int64(1), low; low < high && low == first; step *= 2 {
		if err := split(max(low, high-step)); err != nil {
			return 0, err
		}
	}
	for low < high {
		if err := split(low + (high-low)/2); err != nil {
			return 0, err
		}
	}

	return low, nil
}

// Delayed lists the runs that wait for a time to come, of a job or of all (""), the
// earliest first.
func (l *Ledger) Delayed(ctx context.Context, job string, now time.Time, limit int) ([]Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, delayedRuns, store.Millis(now), limit, job)
}

const delayedRuns = `select ` + record.RunColumns + ` from runs where not_before <> 0 and not_before > $1 and state in ('queued', 'waiting')
	and ($3 = '' or job = $3) order by not_before, id limit $2`

// EventsBetween lists the last events of some kinds that concern no run: those of a job, or
// those of no job (""), oldest first.
func (l *Ledger) EventsBetween(ctx context.Context, job string, from, to time.Time, limit int, kinds ...string) ([]Event, error) {
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
