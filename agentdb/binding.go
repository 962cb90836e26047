package agentdb

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"rouse/agentdb/lineage"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// runs tracks which runs of the ledger wrote to a database.
type runs struct {
	path   string
	db     *sqlite.DB
	health *Health

	newest atomic.Int64 // highest run recorded as a writer
	// unknown is the reason why the ledger did not know the database's runs when it was opened.
	unknown string
}

// bind binds an opened database to the ledger. It returns *UnknownRunsError if the database holds
// runs that the ledger does not know, unless adopt is true.
func (r *runs) bind(ctx context.Context, l lineage.Ledger, adopt bool) error {
	if l == nil {
		return nil
	}

	known, err := lineage.Read(ctx, r.db.Read())
	if err != nil {
		return r.health.explain(ctx, err)
	}

	newest, err := l.NewestRun(ctx)
	if err != nil {
		return err
	}

	epochs := l.Epochs()
	holder, why := lineage.Unknown(known, epochs, newest)
	if r.unknown = why; why != "" && !adopt {
		return &lineage.UnknownRunsError{Path: r.path, Reason: why}
	}
	// New runs would reuse the numbers of runs that have already written to this database.
	if i := slices.IndexFunc(known, func(r lineage.Row) bool { return r.ID == epochs[len(epochs)-1].ID && r.Newest > newest }); i >= 0 {
		return &lineage.UnknownRunsError{Path: r.path, Reason: fmt.Sprintf("the ledger of this home is to give run ids up to %d again; start rouse again, so that it begins a new epoch above them", known[i].Newest)}
	}

	want := lineage.Bind(known, holder, epochs, why == "")
	r.newest.Store(want[len(want)-1].Newest)
	if slices.Equal(known, want) { // do not write to a database that is only read
		return nil
	}

	err = r.db.Do(ctx, func(tx *sqlite.Tx) error { return lineage.Write(tx, sqlvalue.Now(), want) })
	if err != nil {
		return r.health.explain(ctx, err)
	}
	return nil
}

// note records a run as a writer before its first write since the database was opened. The record
// makes it possible to recognize an older ledger.
func (r *runs) note(tx *sqlite.Tx, run int64) error {
	if run <= r.newest.Load() {
		return nil
	}
	_, err := tx.Exec(`update _ledgers set newest = ?1 where n = `+lineage.OfRun+` and newest < ?1`, run)
	return err
}

// noted updates newest. Call it after the transaction of note has committed.
func (r *runs) noted(run int64) {
	for {
		known := r.newest.Load()
		if run <= known || r.newest.CompareAndSwap(known, run) {
			return
		}
	}
}

// UnknownRuns returns the reason why the ledger did not know the database's runs when it was
// opened, or "" if it knew them.
func (db *DB) UnknownRuns() string { return db.runs.unknown }
