package ledger

import (
	"context"
	"slices"
	"time"

	"rouse/internal/ledger/store"
)

// SyncJobs replaces the jobs of the ledger with those of the configuration. A job that is new, was
// removed before, or has a changed schedule starts from now. An unchanged job keeps its anchor and
// watermark. A removed job keeps its history.
func (l *Ledger) SyncJobs(ctx context.Context, now time.Time, specs []JobSpec) (map[string]JobState, error) {
	known, err := l.Jobs(ctx)
	if err != nil {
		return nil, err
	}

	out := make(map[string]JobState, len(known))
	for _, st := range known {
		out[st.Name] = st
	}
	if len(known) == len(specs) && !slices.ContainsFunc(specs, func(s JobSpec) bool { return out[s.Name].JobSpec != s }) {
		return out, nil // most starts and reloads change no job
	}

	err = store.Write(ctx, l.DB, func(tx *store.Tx) error {
		// the operation may run more than once
		clear(out)
		const candidate = 2 // removed, unless the configuration still has it
		tx.Run(`update jobs set removed = $1 where removed = 0`, candidate)

		for _, s := range specs {
			st, err := store.One(tx, jobFields, `insert into jobs (name, agent, schedule_hash, anchor, watermark) values ($1, $2, $3, $4, $4)
				on conflict (name) do update set agent = excluded.agent, removed = 0,
				anchor = case when jobs.schedule_hash = excluded.schedule_hash and jobs.removed <> 1 then jobs.anchor else excluded.anchor end,
				watermark = case when jobs.schedule_hash = excluded.schedule_hash and jobs.removed <> 1 then jobs.watermark else excluded.watermark end,
				schedule_hash = excluded.schedule_hash returning name, agent, schedule_hash, anchor, watermark`, s.Name, s.Agent, s.ScheduleHash, store.Millis(now))
			if err != nil {
				return err
			}
			out[s.Name] = st
		}

		tx.Run(`update jobs set removed = 1 where removed = $1`, candidate)
		return nil
	})

	return out, err
}

// Jobs returns the schedule state of all configured jobs.
func (l *Ledger) Jobs(ctx context.Context) ([]JobState, error) {
	return store.List(store.Reads(ctx, l.DB), jobFields, `select name, agent, schedule_hash, anchor, watermark from jobs where removed <> 1 order by name`)
}

func jobFields(s *JobState) []any {
	return []any{&s.Name, &s.Agent, &s.ScheduleHash, store.Time(&s.Anchor), store.Time(&s.Watermark)}
}

// RewindWatermarks moves the watermarks back to now, after the clock ran ahead and was corrected.
// Occurrences that ran in the repeated time have rows and do not run twice. A pause that began in
// that time begins now and keeps its length. A pause that was ended in that time ends now.
func (l *Ledger) RewindWatermarks(ctx context.Context, now time.Time) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		tx.Run(`update jobs set watermark = $1 where watermark > $1`, store.Millis(now))
		moved, err := store.Changed(tx, `update pauses set since = case when since > $1 then $1 else since end,
			until = case when since > $1 and until <> 0 then until - since + $1 else until end,
			ended_at = case when ended_at > $1 then $1 else ended_at end where since > $1 or ended_at > $1`, store.Millis(now))
		tx.Replanned = moved
		return err
	})
}

// JobState returns the schedule state of a configured job. It returns false if the job is new to
// this ledger, or was removed at the last SyncJobs.
func (l *Ledger) JobState(ctx context.Context, name string) (JobState, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), jobFields, `select name, agent, schedule_hash, anchor, watermark from jobs where name = $1 and removed <> 1`, name))
}
