package runs

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Occurrences reads the instants of the schedules of jobs.
type Occurrences struct{ DB *store.DB }

// Around lists the last instants of a job before a time and the first from it
// on, oldest first.
func (l *Occurrences) Around(ctx context.Context, job string, at time.Time, before, after int) ([]Occurrence, error) {
	out, err := store.List(store.Reads(ctx, l.DB), OccurrenceFields, rowsBefore, job, store.Millis(at), before)
	if err != nil {
		return nil, err
	}

	// The query finds the nearest ones first.
	slices.Reverse(out)
	later, err := store.List(store.Reads(ctx, l.DB), OccurrenceFields, rowsFrom, job, store.Millis(at), after)
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

// OthersAround lists the runs of a job that no schedule asked for: the last that were queued
// before a time and the first from it on, within a window whose bounds may be zero for none.
// They are in the order in which they were accepted.
func (l *Runs) OthersAround(ctx context.Context, job string, at time.Time, before, after int, from, to time.Time) ([]record.Run, error) {
	middle, err := firstRunFrom(ctx, l.DB, job, at)
	if err != nil {
		return nil, err
	}

	// The window has a first id, so that the query does not go through all runs of schedules to the very
	// first one when there are fewer of the others than are wanted.
	first := int64(0)
	if !from.IsZero() {
		if first, err = firstRunFrom(ctx, l.DB, job, from); err != nil {
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
		if end, err = firstRunFrom(ctx, l.DB, job, to.Add(time.Millisecond)); err != nil {
			return nil, err
		}
	}

	later, err := store.List(store.Reads(ctx, l.DB), record.RunFields, othersFrom, job, middle, end, after)
	return append(out, later...), err
}

// firstRunFrom is the id of the first run of a job ("": of any) that was queued at a time or later, and one
// more than the last id when there is none. Ids grow with time, except where a clock was set
// back, so a search that halves what is left finds it in a few queries, however many runs there are.
func firstRunFrom(ctx context.Context, db *store.DB, job string, at time.Time) (int64, error) {
	ends, from, of := runRange, runFrom, []any{job}
	if job == "" {
		ends, from, of = anyRunRange, anyRunFrom, nil
	}

	var low, high int64
	if err := store.Scan(store.Reads(ctx, db), []any{&low, &high}, ends, of...); err != nil {
		return 0, err
	}

	// split says on which side of a run between low and high the answer lies.
	split := func(middle int64) error {
		var id, queued int64
		err := store.Scan(store.Reads(ctx, db), []any{&id, &queued}, from, append(of, middle)...)
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
func (l *Runs) Delayed(ctx context.Context, job string, now time.Time, limit int) ([]record.Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, delayedRuns, store.Millis(now), limit, job)
}

const delayedRuns = `select ` + record.RunColumns + ` from runs where not_before <> 0 and not_before > $1 and state in ('queued', 'waiting')
	and ($3 = '' or job = $3) order by not_before, id limit $2`

// Ended are the runs of a job, or of an agent without one, that ended with an outcome.
type Ended struct {
	Job, Agent string
	Outcome    domain.Outcome
	Runs       int
	Tokens     int64
	Cost       int64 // in millionths of a US dollar
}

// runsEnded goes from job to job, for the index of what has ended begins with it.
const runsEnded = `with recursive names(job) as (select min(job) from runs
		union all select (select min(job) from runs where job > names.job) from names where names.job is not null)
	select r.job, r.agent, r.outcome, count(*), cast(coalesce(sum(r.tokens_in + r.tokens_out), 0) as bigint), cast(coalesce(sum(r.cost_micro_usd), 0) as bigint)
	from names cross join runs r where r.job = names.job and r.state = 'finished' and r.finished_at >= $1 and r.finished_at < $2
	group by r.job, r.agent, r.outcome order by r.job, r.agent, r.outcome`

// EndedBetween counts the runs that ended at from or later, and before to.
func (l *Runs) EndedBetween(ctx context.Context, from, to time.Time) ([]Ended, error) {
	return store.List(store.Reads(ctx, l.DB), func(e *Ended) []any {
		return []any{&e.Job, &e.Agent, &e.Outcome, &e.Runs, &e.Tokens, &e.Cost}
	}, runsEnded, store.Millis(from), store.Millis(to))
}

// Occurrence is one due instant of a job's schedule.
type Occurrence struct {
	Job, Source     string
	Nominal, Actual time.Time
	Decision        domain.Decision
	Reason          string
	Run             int64
	Outcome         domain.Outcome // of the run
	// Through and Instants are those of a Due that stands for many; Instants is 0 when
	// they are too many to count, and 1 for a row of its own.
	Through  time.Time
	Instants int
}

const occurrences = `select o.job, o.source, o.nominal, o.actual, o.decision, o.reason, o.run, o.through, o.instants, coalesce(r.outcome, '')
	from occurrences o left join runs r on r.id = o.run`

func OccurrenceFields(o *Occurrence) []any {
	return []any{&o.Job, &o.Source, store.Time(&o.Nominal), store.Time(&o.Actual), &o.Decision, &o.Reason, &o.Run, store.Time(&o.Through), &o.Instants, &o.Outcome}
}

const OneOccurrence = occurrences + ` where o.job = $1 and o.nominal = $2`

// List lists the instants of a job ("": of all) between two times, newest first. A row
// that stands for a stretch is listed when any part of the stretch lies between them.
func (l *Occurrences) List(ctx context.Context, job string, from, to time.Time, limit int) ([]Occurrence, error) {
	args := []any{store.Millis(from), store.Millis(to), limit}
	if job != "" {
		args = append(args, job)
	}
	return store.List(store.Reads(ctx, l.DB), OccurrenceFields, occurrencesBetween(job), args...)
}

// NotRun is Occurrences of all jobs without those that became runs.
func (l *Occurrences) NotRun(ctx context.Context, from, to time.Time, limit int) ([]Occurrence, error) {
	return store.List(store.Reads(ctx, l.DB), OccurrenceFields, notRun, store.Millis(from), store.Millis(to), limit)
}

// notRun adds 0 as occurrencesBetween does.
const notRun = occurrences + ` where o.nominal >= $1 and o.nominal <= $2 and o.decision <> 'run' union all ` +
	occurrences + ` where o.through <> 0 and o.through >= $1 and o.nominal + 0 < $1 and o.decision <> 'run' order by 3 desc, 1 limit $3`

// occurrencesBetween adds 0 or an empty text to columns to keep SQLite from their index: the one
// on stretches, which are few, is better there than the one on instants.
func occurrencesBetween(job string) string {
	within, reaching := ` where o.nominal >= $1 and o.nominal <= $2`, ` where o.through <> 0 and o.through >= $1 and o.nominal + 0 < $1`
	if job != "" {
		within, reaching = within+` and o.job = $4`, reaching+` and o.job || '' = $4`
	}
	return occurrences + within + ` union all ` + occurrences + reaching + ` order by 3 desc, 1 limit $3`
}

// Latest is the latest instant of a job's schedules that something was decided about, up to a time; zero before the first.
func (l *Occurrences) Latest(ctx context.Context, job string, until time.Time) (time.Time, error) {
	return store.TimeOf(store.Reads(ctx, l.DB), `select coalesce(max(nominal), 0) from occurrences where job = $1 and nominal <= $2`, job, store.Millis(until))
}
