// Package maint maintains a ledger. It removes old records, copies a ledger, replaces it with a
// backup, and prepares a restored ledger for use.
package maint

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/budget"
	"rouse/internal/ledger/node"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/store"
)

// The numbers of runs and of other rows that one transaction removes. Small transactions let other
// writers proceed.
const (
	pruneBatch = 200
	pruneRows  = 2000
)

// Maint removes old records of a ledger, and prepares a restored ledger for use.
type Maint struct {
	DB     *store.DB
	Blobs  *blob.Blobs
	Nodes  *node.Nodes
	Pauses *pause.Pauses
}

// Prune removes finished runs that are older than the retention period of their job. It also
// removes their records and the equally old occurrences of the job. The watermark of the job still
// covers those occurrences. Claims are kept forever, because old files would run again otherwise.
// It returns the number of removed runs.
func (l *Maint) Prune(ctx context.Context, now time.Time, keep func(job string) time.Duration) (int, error) {
	// A backup needs the large values at its snapshot.
	release, err := store.HoldValues(ctx, l.DB)
	if err != nil {
		return 0, err
	}
	defer release()

	names, err := store.Values[string](store.Reads(ctx, l.DB), prunableNames)
	if err != nil {
		return 0, err
	}

	total := 0
	if err := l.detachNotices(ctx); err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := l.pruneRecord(ctx, name, now.Add(-keep(name)))
		total += n
		if err != nil {
			return total, err
		}
	}

	if err := l.detachNotices(ctx); err != nil {
		return total, err
	}
	if err := l.pruneSpending(ctx, now); err != nil {
		return total, err
	}
	return total, l.Blobs.Collect(ctx, now)
}

// pruneRecord removes the old runs of a job, and then old occurrences, pauses, and events without a
// run.
func (l *Maint) pruneRecord(ctx context.Context, job string, before time.Time) (total int, err error) {
	// Usually there are no old rows.
	if some, err := l.anyOld(ctx, oldOfAnyKind, job, store.Millis(before)); err != nil || !some {
		return 0, err
	}

	for n := pruneBatch; n == pruneBatch; { // a batch that is not full is the last
		if some, err := l.anyOld(ctx, oldRuns, job, store.Millis(before)); err != nil || !some {
			if err != nil {
				return total, err
			}
			break
		}

		n, err = l.pruneJob(ctx, job, before)
		total += n
		if err != nil {
			return total, fmt.Errorf("removing old runs of %s: %w", job, err)
		}
	}

	for _, old := range otherRows {
		if err := l.pruneOld(ctx, old, job, store.Millis(before)); err != nil {
			return total, fmt.Errorf("removing the old record of %s: %w", job, err)
		}
	}
	return total, nil
}

// oldSpending compares periods as text, regardless of their time zone.
const oldSpending = `period < case length(period) when 10 then $1 else $2 end`

// pruneSpending removes the sums of old days and months.
func (l *Maint) pruneSpending(ctx context.Context, now time.Time) error {
	day := now.AddDate(0, 0, -budget.KeepSpending).Format(time.DateOnly)
	if old, err := store.Value[bool](store.Reads(ctx, l.DB), `select exists (select 1 from spending where `+oldSpending+`)`, day, budget.MonthOfDay(day)); err != nil || !old {
		return err
	}
	return store.Exec(ctx, l.DB, `delete from spending where `+oldSpending, day, budget.MonthOfDay(day))
}

// prunableNames selects the jobs that may have a record, and "" for records without a job. It skips
// from job to job in the indexes of runs and events, which is fast for any number of rows.
const prunableNames = `with recursive named(job) as (select min(job) from runs
		union all select (select min(job) from runs where job > named.job) from named where named.job is not null),
	eventful(job) as (select min(job) from events where run = 0
		union all select (select min(job) from events where run = 0 and job > eventful.job) from eventful where eventful.job is not null)
	select job from named where job is not null union select job from eventful where job is not null union select name from jobs
	union select name from pauses where scope = 'job' union select job from incidents union select job from outbox where run = 0 union select '' order by 1`

// oldRows has a query that finds old rows, and a statement that removes the rows it finds. The
// parameters of the query are a job, a time limit, and a maximum number of rows.
type oldRows struct{ find, remove string }

// Pauses of a job are kept as long as its runs: they tell which failures happened before the job
// was last resumed.
var (
	// An occurrence is kept as long as its run, because an old one may have been backfilled today.
	oldOccurrences = oldRows{`select nominal from occurrences where job = $1 and nominal < $2 and through < $2
		and not exists (select 1 from runs where runs.id = occurrences.run)
		and nominal <= (select watermark from jobs where name = $1) order by nominal limit $3`, `delete from occurrences where job = $1 and nominal in (%s)`}
	oldEvents = oldRows{`select id from events where job = $1 and run = 0 and at < $2 order by at limit $3`, `delete from events where id in (%s)`}
	oldPauses = oldRows{`select id from pauses where (($1 = '' and scope <> 'job') or (scope = 'job' and name = $1))
		and ((ended_at <> 0 and ended_at < $2) or (until <> 0 and until < $2)) limit $3`, `delete from pauses where id in (%s)`}
)

// otherRows lists all old rows except runs.
var otherRows = []oldRows{oldOccurrences, oldEvents, oldPauses, oldIncidents, oldNotices}

// oldOfAnyKind combines the queries for all kinds of old rows. There may be thousands of jobs, and
// most have no old rows.
var oldOfAnyKind = func() string {
	query := `select 1 where exists (` + oldRuns + `)`
	for _, o := range otherRows {
		query += ` or exists (` + o.find + `)`
	}
	return query
}()

func (o oldRows) statement() string { return fmt.Sprintf(o.remove, o.find) }

// anyOld reports whether a query for old rows finds one. It avoids a write transaction, because
// each one wakes all waiters.
func (l *Maint) anyOld(ctx context.Context, find, job string, before int64) (bool, error) {
	_, some, err := store.OrFalse(store.Value[int64](store.Reads(ctx, l.DB), find, job, before, 1))
	return some, err
}

func (l *Maint) pruneOld(ctx context.Context, old oldRows, job string, before int64) error {
	if some, err := l.anyOld(ctx, old.find, job, before); err != nil || !some {
		return err
	}

	statement := old.statement()
	for n := int64(pruneRows); n == pruneRows; {
		if err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
			done, err := tx.Exec(statement, job, before, pruneRows)
			if err == nil {
				n, err = done.RowsAffected()
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// oldRuns skips runs that left a workspace half changed, because they may be retried from their
// checkpoint.
const oldRuns = `select id from runs where job = $1 and state = 'finished' and finished_at < $2
	and not exists (select 1 from workspaces where review <> 0 and review = runs.id) order by finished_at, id limit $3`

func (l *Maint) pruneJob(ctx context.Context, job string, before time.Time) (int, error) {
	defer l.Blobs.Exclude()()

	var ids []int64
	var orphans []string
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		var err error
		ids, err = store.Values[int64](tx, oldRuns, job, store.Millis(before), pruneBatch)
		orphans = nil // the operation may run more than once
		for _, id := range ids {
			freed, e := pruneRun(tx, id)
			orphans, err = append(orphans, freed...), errors.Join(err, e)
		}
		return err
	})
	if err != nil {
		return 0, err
	}

	// Remove files after the commit: a crash in between leaves a file without a row, never a row
	// without its file.
	return len(ids), l.Blobs.Remove(orphans)
}

// pruneRun removes one run and returns its large values that no other run refers to.
func pruneRun(tx *store.Tx, id int64) ([]string, error) {
	for _, statement := range []string{
		`delete from attempts where run = $1`, `delete from steps where run = $1`, `delete from calls where run = $1`,
		`delete from events where run = $1 and run <> 0`, `delete from outbox where run = $1 and state <> 'pending'`, `delete from inbox where run = $1`, `delete from reservations where run = $1`,
		`delete from file_ops where run = $1`, `delete from deliveries where run = $1`,
		// A workspace outlives its runs, with its artifacts and its last checkpoint.
		`delete from artifacts where run = $1 and workspace = 0`,
		`delete from checkpoints where run = $1 and (workspace = 0 or id < (select max(id) from checkpoints as last where last.workspace = checkpoints.workspace))`,
		`delete from runs where id = $1`,
	} {
		tx.Run(statement, id)
	}

	freed, err := store.Values[string](tx, `select hash from blobs b where run = $1 and not exists (select 1 from blobs o where o.hash = b.hash and o.run <> $1)`, id)
	tx.Run(`delete from blobs where run = $1`, id)
	return freed, err
}

// oldNotices finds notices without a run; other notices are removed with their runs. It also finds
// notices that are still pending long after the retention period, because no process would deliver
// them any more.
var oldNotices = oldRows{`select id from outbox where run = 0 and job = $1 and created_at < $2
	and (state <> 'pending' or created_at < $2 - ` + strconv.FormatInt(keepPending.Milliseconds(), 10) + `) limit $3`, `delete from outbox where id in (%s)`}

// keepPending is longer than the daemon tries to deliver a notice.
const keepPending = 14 * 24 * time.Hour

// removedRuns selects the runs of notices that no longer exist.
const removedRuns = `select distinct run from outbox where run > 0 and not exists (select 1 from runs where runs.id = outbox.run)`

// detachNotices removes the reference to a removed run from notices and their delivery events.
// oldNotices then finds them. A notice that was pending when its run was removed is still
// delivered.
func (l *Maint) detachNotices(ctx context.Context) error {
	runs, err := store.Values[int64](store.Reads(ctx, l.DB), removedRuns)
	if err != nil || len(runs) == 0 {
		return err
	}
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, run := range runs {
			for _, statement := range []string{
				`update outbox set run = 0 where run = $1 and not exists (select 1 from runs where runs.id = $1)`,
				`update events set run = 0, seq = 0 where run = $1 and run <> 0 and not exists (select 1 from runs where runs.id = $1)`,
			} {
				tx.Run(statement, run)
			}
		}
		return nil
	})
}

// oldIncidents finds incidents by the time of their last failure, whether open or closed. The run
// of that failure is as old, so the cause is no longer recorded.
var oldIncidents = oldRows{`select id from incidents where job = $1 and last_at < $2 order by last_at limit $3`, `delete from incidents where id in (%s)`}
