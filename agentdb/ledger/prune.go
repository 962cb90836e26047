package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
)

// pruneBatch is how many runs are removed in one transaction, so that others get their turn.
const pruneBatch = 200

// Prune removes finished runs that are older than their job keeps them, with everything
// recorded of them. Claims and occurrences stay: exactly once is for ever. It returns how
// many runs were removed.
func (l *Ledger) Prune(ctx context.Context, now time.Time, keep func(job string) time.Duration) (int, error) {
	rows, err := l.read.QueryContext(ctx, `select distinct job from runs`)
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
			n, err := l.pruneJob(ctx, job, now.Add(-keep(job)))
			total += n
			if err != nil {
				return total, fmt.Errorf("removing old runs of %s: %w", job, err)
			}
			if n < pruneBatch {
				break
			}
		}
	}
	return total, nil
}

func (l *Ledger) pruneJob(ctx context.Context, job string, before time.Time) (int, error) {
	l.keeping.Lock() // nobody starts to refer to a blob that is being dropped
	defer l.keeping.Unlock()
	var ids []int64
	var orphans []string
	err := l.do(ctx, func(tx *sqlite.Tx) error {
		rows, err := tx.Query(`select id from runs where job = $1 and state = 'finished' and finished_at < $2 order by id limit $3`, job, ms(before), pruneBatch)
		if ids, err = collect(rows, err, scanID); err != nil {
			return err
		}
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
	return len(ids), l.dropBlobs(orphans)
}

func scanID(rows *sql.Rows) (int64, error) {
	var id int64
	err := rows.Scan(&id)
	return id, err
}

// pruneRun removes one run and returns the blobs that nobody refers to any more.
func pruneRun(tx *sqlite.Tx, id int64) ([]string, error) {
	for _, statement := range []string{
		`delete from attempts where run = $1`, `delete from steps where run = $1`, `delete from calls where run = $1`,
		`delete from events where run = $1 and run <> 0`, `delete from outbox where run = $1 and state <> 'pending'`, `delete from runs where id = $1`,
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
