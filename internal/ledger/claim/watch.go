package claim

import (
	"context"
	"time"

	"rouse/internal/ledger/store"
)

// WatchState is the stored state of a job's watch.
type WatchState struct {
	Job   string
	Since time.Time // time the job began to watch
	// The following fields belong to a converging watch. Fingerprint and Tree describe the folder
	// before the last run. Round is the number of runs since the folder was last stable, and Run is
	// the last of them.
	Fingerprint string
	Tree        string
	Round       int
	Run         int64
	// Collected is the time of the last handover of a collecting watch. Run is the run that got the
	// files, or zero if there were no files.
	Collected time.Time
}

// Watches stores the state of the watches of jobs.
type Watches struct{ DB *store.DB }

// State returns the stored state of a job's watch, and reports whether there is one.
func (l *Watches) State(ctx context.Context, job string) (WatchState, bool, error) {
	st, known, err := store.OrFalse(store.One(store.Reads(ctx, l.DB), func(st *WatchState) []any { return append(watchFields(st), &st.Tree) },
		`select `+watchColumns+`, tree from watches where job = $1`, job))
	st.Job = job
	return st, known, err
}

const watchColumns = `job, since, print, round, run, collected`

func watchFields(st *WatchState) []any {
	return []any{&st.Job, store.Time(&st.Since), &st.Fingerprint, &st.Round, &st.Run, store.Time(&st.Collected)}
}

// States returns the stored states of all watches by job. Tree is not set, because it may be large.
func (l *Watches) States(ctx context.Context) (map[string]WatchState, error) {
	found, err := store.List(store.Reads(ctx, l.DB), watchFields, `select `+watchColumns+` from watches`)
	out := make(map[string]WatchState, len(found))
	for _, st := range found {
		out[st.Job] = st
	}
	return out, err
}

// Save stores the states of watches in one transaction.
func (l *Watches) Save(ctx context.Context, states ...WatchState) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, st := range states {
			SaveWatch(tx, st)
		}
		return nil
	})
}

// Delete deletes the stored states of the watches of jobs.
func (l *Watches) Delete(ctx context.Context, jobs ...string) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, job := range jobs {
			tx.Run(`delete from watches where job = $1`, job)
		}
		return nil
	})
}

// SaveWatch stores the state of a watch in a transaction.
func SaveWatch(tx *store.Tx, st WatchState) {
	tx.Run(`insert into watches (job, since, print, tree, round, run, collected) values ($1, $2, $3, $4, $5, $6, $7)
		on conflict (job) do update set since = excluded.since, print = excluded.print, tree = excluded.tree, round = excluded.round, run = excluded.run,
		collected = excluded.collected`,
		st.Job, store.Millis(st.Since), st.Fingerprint, st.Tree, st.Round, st.Run, store.Millis(st.Collected))
}
