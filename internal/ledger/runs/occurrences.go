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

// Occurrences reads the occurrences of scheduled jobs.
type Occurrences struct{ DB *store.DB }

// Around returns the last occurrences of a job before a time, and the first ones from that time on,
// oldest first.
func (l *Occurrences) Around(ctx context.Context, job string, at time.Time, before, after int) ([]Occurrence, error) {
	out, err := store.List(store.Reads(ctx, l.DB), OccurrenceFields, rowsBefore, job, store.Millis(at), before)
	if err != nil {
		return nil, err
	}

	// The query returns the nearest ones first.
	slices.Reverse(out)
	later, err := store.List(store.Reads(ctx, l.DB), OccurrenceFields, rowsFrom, job, store.Millis(at), after)
	return append(out, later...), err
}

const (
	rowsBefore = occurrences + ` where o.job = $1 and o.nominal < $2 order by o.nominal desc limit $3`
	rowsFrom   = occurrences + ` where o.job = $1 and o.nominal >= $2 order by o.nominal limit $3`

	othersBefore = `select ` + record.RunColumns + ` from runs where job = $1 and triggered_by not in ('schedule', 'backfill') and id >= $2 and id < $3 and queued_at >= $4 order by id desc limit $5`
	othersFrom   = `select ` + record.RunColumns + ` from runs where job = $1 and triggered_by not in ('schedule', 'backfill') and id >= $2 and id < $3 order by id limit $4`
	// Two subqueries, because a single query for both ends would scan all rows in between.
	runRange = `select coalesce((select min(id) from runs where job = $1), 0), coalesce((select max(id) from runs where job = $1), 0) + 1`
	runFrom  = `select id, queued_at from runs where job = $1 and id >= $2 order by id limit 1`

	anyRunRange = `select coalesce((select min(id) from runs), 0), coalesce((select max(id) from runs), 0) + 1`
	anyRunFrom  = `select id, queued_at from runs where id >= $1 order by id limit 1`
)

// OthersAround returns the runs of a job that were not started by a schedule: the last that were
// queued before a time, and the first from that time on. from and to bound the result if they are
// not zero. The runs are in the order of their ids.
func (l *Runs) OthersAround(ctx context.Context, job string, at time.Time, before, after int, from, to time.Time) ([]record.Run, error) {
	middle, err := firstRunFrom(ctx, l.DB, job, at)
	if err != nil {
		return nil, err
	}

	// The lower bound keeps the query from scanning all scheduled runs if there are few others.
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
		// The end of the window is included.
		if end, err = firstRunFrom(ctx, l.DB, job, to.Add(time.Millisecond)); err != nil {
			return nil, err
		}
	}

	later, err := store.List(store.Reads(ctx, l.DB), record.RunFields, othersFrom, job, middle, end, after)
	return append(out, later...), err
}

// firstRunFrom returns the id of the first run of a job that was queued at a time or later. If
// there is no such run, it returns the last id plus one. An empty job means all jobs.
//
// Ids grow with time, unless the clock was set back. A binary search therefore needs few queries,
// even with many runs.
func firstRunFrom(ctx context.Context, db *store.DB, job string, at time.Time) (int64, error) {
	ends, from, of := runRange, runFrom, []any{job}
	if job == "" {
		ends, from, of = anyRunRange, anyRunFrom, nil
	}

	var low, high int64
	if err := store.Scan(store.Reads(ctx, db), []any{&low, &high}, ends, of...); err != nil {
		return 0, err
	}

	// split moves low or high to the run at middle.
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

	// Most searches are for recent runs, so it first steps back from the end with doubled steps.
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

// Delayed returns the runs with a start time in the future, earliest first. An empty job means all
// jobs.
func (l *Runs) Delayed(ctx context.Context, job string, now time.Time, limit int) ([]record.Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, delayedRuns, store.Millis(now), limit, job)
}

const delayedRuns = `select ` + record.RunColumns + ` from runs where not_before <> 0 and not_before > $1 and state in ('queued', 'waiting')
	and ($3 = '' or job = $3) order by not_before, id limit $2`

// Ended counts the runs of a job, or of an agent without a job, that ended with an outcome.
type Ended struct {
	Job, Agent string
	Outcome    domain.Outcome
	Runs       int
	Tokens     int64
	Cost       int64 // in millionths of a US dollar
}

// runsEnded goes from job to job, because the index of ended runs begins with the job.
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

// Occurrence is one scheduled time of a job, with the decision about it.
type Occurrence struct {
	Job, Source     string
	Nominal, Actual time.Time
	Decision        domain.Decision
	Reason          string
	Run             int64
	Outcome         domain.Outcome // outcome of the run
	// Through and Instants describe a row for a range of missed times, see ledger.Due. Instants is
	// 0 if there are too many to count, and 1 for a row with a single time.
	Through  time.Time
	Instants int
}

const occurrences = `select o.job, o.source, o.nominal, o.actual, o.decision, o.reason, o.run, o.through, o.instants, coalesce(r.outcome, '')
	from occurrences o left join runs r on r.id = o.run`

func OccurrenceFields(o *Occurrence) []any {
	return []any{&o.Job, &o.Source, store.Time(&o.Nominal), store.Time(&o.Actual), &o.Decision, &o.Reason, &o.Run, store.Time(&o.Through), &o.Instants, &o.Outcome}
}

const OneOccurrence = occurrences + ` where o.job = $1 and o.nominal = $2`

// List returns the occurrences of a job between two times, newest first. An empty job means all
// jobs. A row for a range is included if a part of the range is between the two times.
func (l *Occurrences) List(ctx context.Context, job string, from, to time.Time, limit int) ([]Occurrence, error) {
	args := []any{store.Millis(from), store.Millis(to), limit}
	if job != "" {
		args = append(args, job)
	}
	return store.List(store.Reads(ctx, l.DB), OccurrenceFields, occurrencesBetween(job), args...)
}

// NotRun returns the occurrences of all jobs that did not become runs, between two times, newest
// first.
func (l *Occurrences) NotRun(ctx context.Context, from, to time.Time, limit int) ([]Occurrence, error) {
	return store.List(store.Reads(ctx, l.DB), OccurrenceFields, notRun, store.Millis(from), store.Millis(to), limit)
}

// notRun adds 0 to a column, as occurrencesBetween does.
const notRun = occurrences + ` where o.nominal >= $1 and o.nominal <= $2 and o.decision <> 'run' union all ` +
	occurrences + ` where o.through <> 0 and o.through >= $1 and o.nominal + 0 < $1 and o.decision <> 'run' order by 3 desc, 1 limit $3`

// occurrencesBetween adds 0 or an empty text to columns, so that SQLite does not use their index.
// The index on ranges is faster there, because there are few ranges.
func occurrencesBetween(job string) string {
	within, reaching := ` where o.nominal >= $1 and o.nominal <= $2`, ` where o.through <> 0 and o.through >= $1 and o.nominal + 0 < $1`
	if job != "" {
		within, reaching = within+` and o.job = $4`, reaching+` and o.job || '' = $4`
	}
	return occurrences + within + ` union all ` + occurrences + reaching + ` order by 3 desc, 1 limit $3`
}

// Latest returns the latest occurrence of a job up to a time. Without one it returns the zero time.
func (l *Occurrences) Latest(ctx context.Context, job string, until time.Time) (time.Time, error) {
	return store.TimeOf(store.Reads(ctx, l.DB), `select coalesce(max(nominal), 0) from occurrences where job = $1 and nominal <= $2`, job, store.Millis(until))
}
