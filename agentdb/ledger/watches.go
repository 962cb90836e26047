package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
	"rouse/internal/domain"
)

// WatchState is what the watch of a job remembers.
type WatchState struct {
	Job   string
	Since time.Time // when the job began to watch
	// Of converge: what the folder looked like before the last run (its fingerprint, and the
	// listing behind it), how many runs there have been since it last came to rest, and the
	// last of them.
	Print string
	Tree  string
	Round int
	Run   int64
}

// WatchState reads what the watch of a job remembers; false when there is nothing.
func (l *Ledger) WatchState(ctx context.Context, job string) (WatchState, bool, error) {
	st := WatchState{Job: job}
	var since int64
	err := l.read.QueryRowContext(ctx, `select since, print, tree, round, run from watches where job = $1`, job).Scan(&since, &st.Print, &st.Tree, &st.Round, &st.Run)
	if errors.Is(err, sql.ErrNoRows) {
		return st, false, nil
	}

	st.Since = instant(since)
	return st, err == nil, err
}

// WatchStates is what all watches remember but for their trees, by job.
func (l *Ledger) WatchStates(ctx context.Context) (map[string]WatchState, error) {
	rows, err := l.read.QueryContext(ctx, `select job, since, print, round, run from watches`)
	found, err := collect(rows, err, func(rows *sql.Rows) (WatchState, error) {
		var st WatchState
		var since int64
		err := rows.Scan(&st.Job, &since, &st.Print, &st.Round, &st.Run)
		st.Since = instant(since)
		return st, err
	})

	out := make(map[string]WatchState, len(found))
	for _, st := range found {
		out[st.Job] = st
	}

	return out, err
}

// SaveWatch remembers it, of several watches together.
func (l *Ledger) SaveWatch(ctx context.Context, states ...WatchState) error {
	return l.do(ctx, func(tx *sqlite.Tx) error {
		for _, st := range states {
			if err := saveWatch(tx, st); err != nil {
				return err
			}
		}
		return nil
	})
}

// ForgetWatches drops what the watches of jobs remember.
func (l *Ledger) ForgetWatches(ctx context.Context, jobs ...string) error {
	return l.do(ctx, func(tx *sqlite.Tx) error {
		for _, job := range jobs {
			if _, err := tx.Exec(`delete from watches where job = $1`, job); err != nil {
				return err
			}
		}
		return nil
	})
}

// OutcomeOf is how a run ended, "" while it has not: less to read than the run.
func (l *Ledger) OutcomeOf(ctx context.Context, run int64) (domain.Outcome, error) {
	var outcome string
	err := l.read.QueryRowContext(ctx, `select outcome from runs where id = $1`, run).Scan(&outcome)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("run %d is %w", run, ErrNotFound)
	}
	return domain.Outcome(outcome), err
}

func saveWatch(tx *sqlite.Tx, st WatchState) error {
	_, err := tx.Exec(`insert into watches (job, since, print, tree, round, run) values ($1, $2, $3, $4, $5, $6)
		on conflict (job) do update set since = excluded.since, print = excluded.print, tree = excluded.tree, round = excluded.round, run = excluded.run`,
		st.Job, ms(st.Since), st.Print, st.Tree, st.Round, st.Run)
	return err
}

// Own marks a content as written by a run of the job itself: its own watch does not take it.
func (l *Ledger) Own(ctx context.Context, a Attempt, c Claim) error {
	return l.do(ctx, func(tx *sqlite.Tx) error {
		if _, err := l.fenced(tx, a); err != nil {
			return err
		}

		_, err := tx.Exec(`insert into claims (job, path, hash, size, mod_time, run, generation, outcome, after, own) values ($1, $2, $3, $4, $5, $6, 1, $7, $8, 1)
			on conflict (job, path, hash) do update set run = excluded.run, outcome = excluded.outcome, after = excluded.after, own = 1, dest = '', error = ''
			where claims.outcome <> '' or claims.own = 1`,
			c.Job, l.path(c.Path), c.Hash, c.Size, ms(c.ModTime), a.Run, string(domain.OutcomeSuccess), AfterLeft)
		return err
	})
}

// Release gives back contents that a run took and goes on without: the files were gone, or
// had changed. Dropped again, they get a run of their own.
func (l *Ledger) Release(ctx context.Context, a Attempt, claims ...Claim) error {
	return l.do(ctx, func(tx *sqlite.Tx) error {
		if _, err := l.fenced(tx, a); err != nil {
			return err
		}

		for _, c := range claims {
			if _, err := tx.Exec(`update claims set run = 0, outcome = $1, after = '' where job = $2 and path = $3 and hash = $4 and run = $5 and own = 0`,
				string(domain.OutcomeSkipped), c.Job, l.path(c.Path), c.Hash, a.Run); err != nil {
				return err
			}
		}
		return nil
	})
}

// Breaker stops a job that keeps taking one path again: it writes what wakes it.
type Breaker struct {
	Most    int // claims of one path
	Within  time.Duration
	Notices func(path string) []Notice // what its owner is told; may be nil
}

// breakIn pauses the job of a claim that is one too many.
func (l *Ledger) breakIn(tx *sqlite.Tx, now time.Time, c Claim, run int64, b Breaker) (broken bool, err error) {
	var n int
	if err := tx.QueryRow(`select count(*) from claims c join runs r on r.id = c.run where c.job = $1 and c.path = $2 and c.own = 0 and r.queued_at > $3`,
		c.Job, c.Path, ms(now.Add(-b.Within))).Scan(&n); err != nil || n < b.Most {
		return false, err
	}

	if err := l.pausing(tx); err != nil {
		return false, err
	}

	pauses, err := pausesIn(tx, now)
	if err != nil {
		return false, err
	}
	if _, ok := Paused(pauses, c.Job, "", now); ok {
		return false, nil
	}

	if _, err := setPause(tx, now, Pause{Scope: PauseJob, Name: c.Job, Paused: BySystem,
		Reason: fmt.Sprintf("%s was taken %d times within %s, the last time by run %d: something writes it again and again, perhaps the job itself", c.Path, n, b.Within, run)}); err != nil {
		return false, err
	}

	if b.Notices == nil {
		return true, nil
	}

	for _, notice := range b.Notices(c.Path) {
		if err := addNotice(tx, notice, now); err != nil {
			return false, err
		}
	}

	return true, nil
}
