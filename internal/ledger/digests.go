package ledger

import (
	"context"
	"errors"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"strconv"
	"time"

	"rouse/internal/domain"
)

// DigestThrough is up to when the digests of a channel have told. The first question for a channel is its beginning: it
// writes now, and returns that.
func (l *Ledger) DigestThrough(ctx context.Context, channel string, now time.Time) (time.Time, error) {
	through, known, err := store.OrFalse(store.TimeOf(store.Reads(ctx, l.DB), `select through from digests where channel = $1`, channel))
	if err != nil || known {
		return through, err
	}
	return store.Instant(store.Millis(now)), store.Exec(ctx, l.DB, `insert into digests (channel, through) values ($1, $2) on conflict (channel) do nothing`, channel, store.Millis(now))
}

// AppendDigest puts a digest into the outbox, which tells of the time from one instant to another. A digest that begins
// elsewhere than the last one has ended is none: somebody else was faster, and false is returned.
func (l *Ledger) AppendDigest(ctx context.Context, from, to time.Time, n Notice) (added bool, err error) {
	err = store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if added, err = store.Changed(tx, `update digests set through = $1 where channel = $2 and through = $3`, store.Millis(to), n.Channel, store.Millis(from)); added {
			record.AddNotices(tx, l.Now(), n)
		}
		return err
	})
	return added, err
}

// RestartDigest has the next digest of a channel begin at an instant.
func (l *Ledger) RestartDigest(ctx context.Context, channel string, from time.Time) error {
	return store.Exec(ctx, l.DB, `update digests set through = $1 where channel = $2`, store.Millis(from), channel)
}

// KeepDigests forgets the channels that have no digest any more: one that gets it again later starts over.
func (l *Ledger) KeepDigests(ctx context.Context, channels map[string]bool) error {
	known, err := store.Values[string](store.Reads(ctx, l.DB), `select channel from digests`)
	if err != nil {
		return err
	}

	for _, channel := range known {
		if !channels[channel] {
			err = errors.Join(err, store.Exec(ctx, l.DB, `delete from digests where channel = $1`, channel))
		}
	}
	return err
}

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
func (l *Ledger) EndedBetween(ctx context.Context, from, to time.Time) ([]Ended, error) {
	return store.List(store.Reads(ctx, l.DB), func(e *Ended) []any {
		return []any{&e.Job, &e.Agent, &e.Outcome, &e.Runs, &e.Tokens, &e.Cost}
	}, runsEnded, store.Millis(from), store.Millis(to))
}

// oldNotices are the notices of no run; the others go with their runs. A notice that is pending for keepPending longer than the record is
// kept has no process left that would deliver it or give it up.
var oldNotices = oldRows{`select id from outbox where run = 0 and job = $1 and created_at < $2
	and (state <> 'pending' or created_at < $2 - ` + strconv.FormatInt(keepPending.Milliseconds(), 10) + `) limit $3`, `delete from outbox where id in (%s)`}

// keepPending is longer than a daemon tries to deliver a notice.
const keepPending = 14 * 24 * time.Hour

// removedRuns selects the runs of notices that are not there any more.
const removedRuns = `select distinct run from outbox where run > 0 and not exists (select 1 from runs where runs.id = outbox.run)`

// detachNotices makes the notices that outlive their run notices of no run, which oldNotices finds, and so the events of their
// delivery. A notice that was pending when its run was removed is delivered all the same.
func (l *Ledger) detachNotices(ctx context.Context) error {
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
