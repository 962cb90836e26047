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

// runs knows which runs of the ledger wrote to a database.
type runs struct {
	path   string
	db     *sqlite.DB
	health *Health

	newest  atomic.Int64 // no run above it has written
	unknown string       // why the ledger did not know the runs of the database when it was opened
}

// bind binds an opened database to the ledger. It returns *UnknownRunsError if the database
// holds runs that the ledger does not know, unless adopt is true.
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
	// Its next runs would meet what they wrote in another life.
	if i := slices.IndexFunc(known, func(r lineage.Row) bool { return r.ID == epochs[len(epochs)-1].ID && r.Newest > newest }); i >= 0 {
		return &lineage.UnknownRunsError{Path: r.path, Reason: fmt.Sprintf("the ledger of this home is to give run ids up to %d again; start rouse again, so that it begins a new epoch above them", known[i].Newest)}
	}

	want := lineage.Bind(known, holder, epochs, why == "")
	r.newest.Store(want[len(want)-1].Newest)
	if slices.Equal(known, want) { // a database that is only read is not written to
		return nil
	}

	err = r.db.Do(ctx, func(tx *sqlite.Tx) error { return lineage.Write(tx, sqlvalue.Now(), want) })
	if err != nil {
		return r.health.explain(ctx, err)
	}
	return nil
}

// note records that a run writes, before its first write since the database was opened. From
// that an older ledger is known.
func (r *runs) note(tx *sqlite.Tx, run int64) error {
	if run <= r.newest.Load() {
		return nil
	}
	_, err := tx.Exec(`update _ledgers set newest = ?1 where n = `+lineage.OfRun+` and newest < ?1`, run)
	return err
}

// noted is for after the commit of note.
func (r *runs) noted(run int64) {
	for {
		known := r.newest.Load()
		if run <= known || r.newest.CompareAndSwap(known, run) {
			return
		}
	}
}

// UnknownRuns returns why the ledger did not know the runs of the database when it was opened, or "".
func (db *DB) UnknownRuns() string { return db.runs.unknown }
