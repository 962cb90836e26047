package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
)

// How many runs, and how many other rows, are removed in one transaction, so that other writers
// get their turn.
const (
	pruneBatch = 200
	pruneRows  = 2000
)

// Prune removes finished runs that are older than their job keeps them, with everything
// recorded of them, and the equally old record of its schedule: the job's watermark still says
// that those instants have been dealt with. Claims stay for ever, or old files would run again.
// It returns how many runs were removed.
func (l *Ledger) Prune(ctx context.Context, now time.Time, keep func(job string) time.Duration) (int, error) {
	// A backup needs the large values of its instant.
	select {
	case l.pruning <- struct{}{}:
		defer func() { <-l.pruning }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}

	rows, err := l.statements.query(ctx, jobsWithRuns)
	jobs, err := collect(rows, err, func(rows *sql.Rows) (string, error) {
		var job string
		err := rows.Scan(&job)
		return job, err
	})
	if err != nil {
		return 0, err
	}

	total := 0
	for _, job := range jobs {
		for {
			// Asked without a transaction first: each wakes everybody, and mostly there is nothing to do.
			before := now.Add(-keep(job))
			if some, err := l.anyOld(ctx, oldRuns, job, ms(before)); err != nil || !some {
				if err != nil {
					return total, err
				}
				break
			}

			n, err := l.pruneJob(ctx, job, before)
			total += n
			if err != nil {
				return total, fmt.Errorf("removing old runs of %s: %w", job, err)
			}
			// The last batch was not full, so nothing is left.
			if n < pruneBatch {
				break
			}
		}
	}

	return total, l.pruneTime(ctx, now, keep)
}

// pruneTime removes old occurrences, pauses, events that belong to no run, and sums of days.
func (l *Ledger) pruneTime(ctx context.Context, now time.Time, keep func(job string) time.Duration) error {
	rows, err := l.statements.query(ctx, prunableNames)
	names, err := collect(rows, err, func(rows *sql.Rows) (string, error) {
		var name string
		err := rows.Scan(&name)
		return name, err
	})
	if err != nil {
		return err
	}

	for _, job := range names {
		before := ms(now.Add(-keep(job)))
		for _, old := range []oldRows{oldOccurrences, oldEvents, oldPauses, oldIncidents, oldNotices} {
			if err := l.pruneOld(ctx, old, job, before); err != nil {
				return fmt.Errorf("removing the old record of %s: %w", job, err)
			}
		}
	}

	// Days sort as texts, in whatever zone they were.
	day := now.AddDate(0, 0, -keepSpending).Format(time.DateOnly)
	var old int
	if err := l.statements.row(ctx, `select count(*) from (select 1 from spending where day < $1 limit 1) s`, day).Scan(&old); err != nil || old == 0 {
		return err
	}
	return l.do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`delete from spending where day < $1`, day)
		return err
	})
}

// jobsWithRuns skips from job to job in their index; "" is the job of runs that have none.
const jobsWithRuns = `with recursive names(job) as (select min(job) from runs
		union all select (select min(job) from runs where job > names.job) from names where names.job is not null)
	select job from names where job is not null`

// prunableNames lists the jobs that may have a record, "" for what belongs to no job. It skips
// from job to job in the index of events, however many events there are.
const prunableNames = `with recursive eventful(job) as (select min(job) from events where run = 0
		union all select (select min(job) from events where run = 0 and job > eventful.job) from eventful where eventful.job is not null)
	select job from eventful where job is not null union select name from jobs union select name from pauses where scope = 'job' union select job from incidents union select '' order by 1`

// oldRows finds old rows, by a job, the instant before which its record is old, and how many; and removes those that were found.
type oldRows struct{ find, remove string }

// A job's pauses are kept as long as its runs: they say which failures came before it was last
// resumed.
var (
	// An instant stays as long as its run: one of long ago may have been backfilled today.
	oldOccurrences = oldRows{`select nominal from occurrences where job = $1 and nominal < $2 and through < $2
		and not exists (select 1 from runs where runs.id = occurrences.run)
		and nominal <= (select watermark from jobs where name = $1) order by nominal limit $3`, `delete from occurrences where job = $1 and nominal in (%s)`}
	oldEvents = oldRows{`select id from events where job = $1 and run = 0 and at < $2 order by at limit $3`, `delete from events where id in (%s)`}
	oldPauses = oldRows{`select id from pauses where (($1 = '' and scope <> 'job') or (scope = 'job' and name = $1))
		and ((ended_at <> 0 and ended_at < $2) or (until <> 0 and until < $2)) limit $3`, `delete from pauses where id in (%s)`}
)

func (o oldRows) statement() string { return fmt.Sprintf(o.remove, o.find) }

// anyOld says whether a query for old rows finds one.
func (l *Ledger) anyOld(ctx context.Context, find, job string, before int64) (bool, error) {
	var id int64
	err := l.statements.row(ctx, find, job, before, 1).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (l *Ledger) pruneOld(ctx context.Context, old oldRows, job string, before int64) error {
	if some, err := l.anyOld(ctx, old.find, job, before); err != nil || !some {
		return err
	}

	statement := old.statement()
	for n := int64(pruneRows); n == pruneRows; {
		if err := l.do(ctx, func(tx *sqlite.Tx) error {
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

// oldRuns leaves out those that left a workspace half changed: they may be tried again from their checkpoint.
const oldRuns = `select id from runs where job = $1 and state = 'finished' and finished_at < $2
	and not exists (select 1 from workspaces where review <> 0 and review = runs.id) order by finished_at, id limit $3`

func (l *Ledger) pruneJob(ctx context.Context, job string, before time.Time) (int, error) {
	// Nobody may start to refer to a blob between the query for its references and its removal.
	l.blobsInUse.Lock()
	defer l.blobsInUse.Unlock()

	var ids []int64
	var orphans []string
	err := l.do(ctx, func(tx *sqlite.Tx) error {
		rows, err := tx.Query(oldRuns, job, ms(before), pruneBatch)
		if ids, err = collect(rows, err, scanID); err != nil {
			return err
		}

		// The operation may run more than once.
		orphans = nil
		for _, id := range ids {
			freed, err := pruneRun(tx, id)
			if err != nil {
				return err
			}
			orphans = append(orphans, freed...)
		}

		return nil
	})
	if err != nil {
		return 0, err
	}

	// After the commit: a crash in between leaves a file that nobody needs, and no row without its file.
	return len(ids), l.removeBlobs(orphans)
}

func scanID(rows *sql.Rows) (int64, error) {
	var id int64
	err := rows.Scan(&id)
	return id, err
}

// pruneRun removes one run and returns the blobs that no other run refers to.
func pruneRun(tx *sqlite.Tx, id int64) ([]string, error) {
	for _, statement := range []string{
		`delete from attempts where run = $1`, `delete from steps where run = $1`, `delete from calls where run = $1`,
		`delete from events where run = $1 and run <> 0`, `delete from outbox where run = $1 and state <> 'pending'`, `delete from inbox where run = $1`, `delete from reservations where run = $1`,
		`delete from file_ops where run = $1`, `delete from deliveries where run = $1`,
		// A workspace outlives its runs, with its artifacts and its last checkpoint.
		`delete from artifacts where run = $1 and workspace = 0`,
		`delete from checkpoints where run = $1 and (workspace = 0 or id < (select max(id) from checkpoints as last where last.workspace = checkpoints.workspace))`,
		`delete from runs where id = $1`,
	} {
		if _, err := tx.Exec(statement, id); err != nil {
			return nil, err
		}
	}

	rows, err := tx.Query(`select hash from blobs b where run = $1 and not exists (select 1 from blobs o where o.hash = b.hash and o.run <> $1)`, id)
	freed, err := collect(rows, err, func(rows *sql.Rows) (string, error) {
		var hash string
		err := rows.Scan(&hash)
		return hash, err
	})
	if err != nil {
		return nil, err
	}

	_, err = tx.Exec(`delete from blobs where run = $1`, id)
	return freed, err
}
