package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"rouse/agentdb/sqlite"
)

// WatchState is what the watch of a job remembers.
type WatchState struct {
	Job   string
	Since time.Time // when the job began to watch
	// Of a folder that converges: what it looked like before the last run (its fingerprint, and the
	// listing behind it), how many runs there have been since it last came to rest, and the last
	// of them.
	Fingerprint string
	Tree        string
	Round       int
	Run         int64
	// Collected is the time of the last handover of a collecting watch. Run is the run that got the files, or zero if there
	// were no files.
	Collected time.Time
}

// WatchState reads what the watch of a job remembers; false when there is nothing.
func (l *Ledger) WatchState(ctx context.Context, job string) (WatchState, bool, error) {
	st := WatchState{Job: job}
	var since, collected int64
	err := l.statements.row(ctx, `select since, print, tree, round, run, collected from watches where job = $1`, job).Scan(&since, &st.Fingerprint, &st.Tree, &st.Round, &st.Run, &collected)
	if errors.Is(err, sql.ErrNoRows) {
		return st, false, nil
	}

	st.Since, st.Collected = instant(since), instant(collected)
	return st, err == nil, err
}

// WatchStates reads what all watches remember, by job, without their trees, which may be large.
func (l *Ledger) WatchStates(ctx context.Context) (map[string]WatchState, error) {
	rows, err := l.statements.query(ctx, `select job, since, print, round, run, collected from watches`)
	found, err := collect(rows, err, func(rows scanner) (WatchState, error) {
		var st WatchState
		var since, collected int64
		err := rows.Scan(&st.Job, &since, &st.Fingerprint, &st.Round, &st.Run, &collected)
		st.Since, st.Collected = instant(since), instant(collected)
		return st, err
	})

	out := make(map[string]WatchState, len(found))
	for _, st := range found {
		out[st.Job] = st
	}

	return out, err
}

// SaveWatchStates stores what watches remember, of several in one transaction.
func (l *Ledger) SaveWatchStates(ctx context.Context, states ...WatchState) error {
	return l.do(ctx, func(tx *sqlite.Tx) error {
		for _, st := range states {
			if err := saveWatch(tx, st); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteWatchStates deletes what the watches of jobs remember.
func (l *Ledger) DeleteWatchStates(ctx context.Context, jobs ...string) error {
	return l.do(ctx, func(tx *sqlite.Tx) error {
		for _, job := range jobs {
			if _, err := tx.Exec(`delete from watches where job = $1`, job); err != nil {
				return err
			}
		}
		return nil
	})
}

func saveWatch(tx *sqlite.Tx, st WatchState) error {
	_, err := tx.Exec(`insert into watches (job, since, print, tree, round, run, collected) values ($1, $2, $3, $4, $5, $6, $7)
		on conflict (job) do update set since = excluded.since, print = excluded.print, tree = excluded.tree, round = excluded.round, run = excluded.run,
		collected = excluded.collected`,
		st.Job, ms(st.Since), st.Fingerprint, st.Tree, st.Round, st.Run, ms(st.Collected))
	return err
}
