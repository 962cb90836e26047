package agentdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"rouse/internal/domain"
	"rouse/internal/storage/sqlite"
)

// Ledger is what a database has to know of the ledger whose runs write into it. *ledger.Ledger is
// one.
type Ledger interface {
	Epochs() []domain.Epoch                       // in order; the last goes on
	NewestRun(ctx context.Context) (int64, error) // the highest run id that it has given
}

// ledgerOfRun is SQL for the number of the ledger that the run ?1 belongs to. It is null, which no
// column of it may be, for a run that no ledger which has the database can have.
const ledgerOfRun = `(select n from _ledgers where ?1 between first_run and last_run)`

// ofOtherLedger is SQL for whether a row of the changelog is of a run that the ledger does not
// know.
const ofOtherLedger = `not exists (select 1 from _ledgers where n = ledger and run_id between first_run and last_run)`

// UnknownRunsError is a database with runs that the ledger does not know: the ledger was lost,
// restored to an older state, or is another one. It may give the same run ids again.
type UnknownRunsError struct{ Path, Reason string }

func (e *UnknownRunsError) Error() string {
	return fmt.Sprintf("the database %s cannot be used: %s", e.Path, e.Reason)
}

// ledgerRow is a row of _ledgers.
type ledgerRow struct {
	n           int64
	id          string // "" until a ledger takes a new database
	first, last int64
	turn        int64
	newest      int64
}

func readLedgers(ctx context.Context, q querier) ([]ledgerRow, error) {
	return collect(ctx, q, func(scan scanner) (r ledgerRow, err error) {
		err = scan(&r.n, &r.id, &r.first, &r.last, &r.turn, &r.newest)
		return r, err
	}, `select n, id, first_run, last_run, turn, newest from _ledgers order by turn, n`)
}

// takeLedger binds an opened database to the ledger. It returns *UnknownRunsError if the database
// holds runs that the ledger does not know, unless adopt is true.
func (db *DB) takeLedger(ctx context.Context, l Ledger, adopt bool) error {
	if l == nil {
		return nil
	}

	known, err := readLedgers(ctx, db.db.Read())
	if err != nil {
		return db.explain(ctx, err)
	}

	newest, err := l.NewestRun(ctx)
	if err != nil {
		return err
	}

	epochs := l.Epochs()
	holder, why := unknownRuns(known, epochs, newest)
	if db.unknown = why; why != "" && !adopt {
		return &UnknownRunsError{Path: db.path, Reason: why}
	}
	// Its next runs would meet what they wrote in another life.
	if i := slices.IndexFunc(known, func(r ledgerRow) bool { return r.id == epochs[len(epochs)-1].ID && r.newest > newest }); i >= 0 {
		return &UnknownRunsError{Path: db.path, Reason: fmt.Sprintf("the ledger of this home is to give run ids up to %d again; start rouse again, so that it begins a new epoch above them", known[i].newest)}
	}

	want := boundTo(known, holder, epochs, why == "")
	db.newestRun.Store(want[len(want)-1].newest)
	if slices.Equal(known, want) { // a database that is only read is not written to
		return nil
	}

	err = db.db.Do(ctx, func(tx *sqlite.Tx) error { return writeLedgers(tx, want) })
	if err != nil {
		return db.explain(ctx, err)
	}
	return nil
}

// unknownRuns says which row has the database, and why the ledger with these epochs, whose newest
// run that is, must not have it; "" when it may.
func unknownRuns(known []ledgerRow, epochs []domain.Epoch, newest int64) (holder ledgerRow, why string) {
	holder = known[len(known)-1]
	at := slices.IndexFunc(epochs, func(e domain.Epoch) bool { return e.ID == holder.id })
	if holder.id == "" {
		at = 0
	}
	if at < 0 {
		return holder, fmt.Sprintf("its last runs are of another ledger (%s) than this home's (%s)", holder.id, epochs[len(epochs)-1].ID)
	}

	last := epochs[at].Last
	if last == 0 {
		last = newest
	}
	if holder.newest > last {
		return holder, fmt.Sprintf("run %d has written into it, and the ledger of this home knew none after run %d: it is an older copy, a part of one, or another ledger", holder.newest, last)
	}

	return holder, ""
}

// boundTo are the rows of a database that the ledger with these epochs has, in the order of their
// turns. claimed says that a holder without an id is the first epoch's.
func boundTo(known []ledgerRow, holder ledgerRow, epochs []domain.Epoch, claimed bool) []ledgerRow {
	want := slices.Clone(known)
	count := int64(0)
	for i, r := range want {
		count = max(count, r.n)
		if r.id == "" && claimed {
			want[i].id = epochs[0].ID
		}
		want[i].first, want[i].last = -1, -1
	}

	for i, e := range epochs {
		at := slices.IndexFunc(want, func(r ledgerRow) bool { return r.id == e.ID })
		if at < 0 {
			count++
			at = len(want)
			want = append(want, ledgerRow{n: count, id: e.ID, turn: -1})
		}

		r := &want[at]
		r.first, r.last = e.First, e.Last
		if i == 0 {
			r.first = 0 // what no run has written
		}
		if r.last == 0 {
			r.last = math.MaxInt64
		}
		if i == len(epochs)-1 && (r.turn < holder.turn) {
			r.turn = holder.turn + 1
		}
	}

	slices.SortFunc(want, func(a, b ledgerRow) int { return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.n, b.n)) })
	return want
}

func writeLedgers(tx *sqlite.Tx, want []ledgerRow) error {
	for _, r := range want {
		_, err := tx.Exec(`insert into _ledgers(n, id, first_run, last_run, turn, newest, at) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
			on conflict(n) do update set id = ?2, first_run = ?3, last_run = ?4, turn = ?5, at = case turn when ?5 then at else ?7 end`,
			r.n, r.id, r.first, r.last, r.turn, r.newest, now())
		if err != nil {
			return fmt.Errorf("cannot record which ledger has the database: %w", err)
		}
	}
	return nil
}

// noteRun records that a run writes, before its first write since the database was opened. From
// that an older ledger is known.
func (db *DB) noteRun(tx *sqlite.Tx, run int64) error {
	if run <= db.newestRun.Load() {
		return nil
	}
	_, err := tx.Exec(`update _ledgers set newest = ?1 where n = `+ledgerOfRun+` and newest < ?1`, run)
	return err
}

// noted is for after the commit of noteRun.
func (db *DB) noted(run int64) {
	for {
		known := db.newestRun.Load()
		if run <= known || db.newestRun.CompareAndSwap(known, run) {
			return
		}
	}
}

// ledgersOf returns the rows of _ledgers of a database that is not open.
func ledgersOf(ctx context.Context, path string) (out []ledgerRow, err error) {
	db, err := sqlite.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	return readLedgers(ctx, db)
}
