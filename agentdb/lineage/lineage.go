// Package lineage decides whether a ledger may use an agent's database. The database has a row for
// each ledger epoch whose runs have written to it. A ledger that was lost or restored could assign
// the same run IDs again, so rouse does not open the database with it.
package lineage

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

// Ledger is the ledger whose runs write to a database. *ledger.Ledger implements it.
type Ledger interface {
	Epochs() []domain.Epoch                       // in order; the last epoch is the current one
	NewestRun(ctx context.Context) (int64, error) // the highest run ID that it has assigned
}

// OfRun is SQL for the number of the ledger to which run ?1 belongs. It is null if no ledger of the
// database can have assigned that run ID. Columns with this value are not null, so the write fails.
const OfRun = `(select n from _ledgers where ?1 between first_run and last_run)`

// OfOther is an SQL condition on a row of the changelog. It is true if the ledger does not know the
// row's run.
const OfOther = `not exists (select 1 from _ledgers where n = ledger and run_id between first_run and last_run)`

// UnknownRunsError is the error for a database with runs that the ledger does not know. The ledger
// was lost, restored to an older state, or belongs to another home. It may assign the same run IDs
// again.
type UnknownRunsError struct{ Path, Reason string }

func (e *UnknownRunsError) Error() string {
	return fmt.Sprintf("the database %s cannot be used: %s", e.Path, e.Reason)
}

// Row is a row of _ledgers. It describes one epoch of a ledger.
type Row struct {
	N           int64
	ID          string // "" until a ledger takes a new database
	first, last int64
	turn        int64
	Newest      int64
}

// Read returns the rows of _ledgers in the order of their turns. The last row is that of the
// current holder.
func Read(ctx context.Context, q sqlite.Querier) ([]Row, error) {
	return sqlite.Collect(ctx, q, func(scan sqlite.Scanner) (r Row, err error) {
		err = scan(&r.N, &r.ID, &r.first, &r.last, &r.turn, &r.Newest)
		return r, err
	}, `select n, id, first_run, last_run, turn, newest from _ledgers order by turn, n`)
}

// Unknown returns the current holder of the database. It also returns why a ledger with these
// epochs must not use the database, or "" if it may. newest is the highest run ID of the ledger.
func Unknown(known []Row, epochs []domain.Epoch, newest int64) (holder Row, why string) {
	holder = known[len(known)-1]
	at := slices.IndexFunc(epochs, func(e domain.Epoch) bool { return e.ID == holder.ID })
	if holder.ID == "" {
		at = 0
	}
	if at < 0 {
		return holder, fmt.Sprintf("its last runs are of another ledger (%s) than this home's (%s)", holder.ID, epochs[len(epochs)-1].ID)
	}

	last := epochs[at].Last
	if last == 0 {
		last = newest
	}
	if holder.Newest > last {
		return holder, fmt.Sprintf("run %d has written into it, and the ledger of this home knew none after run %d: it is an older copy, a part of one, or another ledger", holder.Newest, last)
	}

	return holder, ""
}

// Bind returns the rows of a database for use by the ledger with these epochs, in the order of
// their turns. If claimed is true, a holder without an ID becomes the first epoch.
func Bind(known []Row, holder Row, epochs []domain.Epoch, claimed bool) []Row {
	want := slices.Clone(known)
	count := int64(0)
	for i, r := range want {
		count = max(count, r.N)
		if r.ID == "" && claimed {
			want[i].ID = epochs[0].ID
		}
		want[i].first, want[i].last = -1, -1
	}

	for i, e := range epochs {
		at := slices.IndexFunc(want, func(r Row) bool { return r.ID == e.ID })
		if at < 0 {
			count++
			at = len(want)
			want = append(want, Row{N: count, ID: e.ID, turn: -1})
		}

		r := &want[at]
		r.first, r.last = e.First, e.Last
		if i == 0 {
			r.first = 0 // run 0: changes outside any run
		}
		if r.last == 0 {
			r.last = math.MaxInt64
		}
		if i == len(epochs)-1 && (r.turn < holder.turn) {
			r.turn = holder.turn + 1
		}
	}

	slices.SortFunc(want, func(a, b Row) int { return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.N, b.N)) })
	return want
}

// Write stores the rows.
func Write(tx *sqlite.Tx, at string, want []Row) error {
	for _, r := range want {
		_, err := tx.Exec(`insert into _ledgers(n, id, first_run, last_run, turn, newest, at) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
			on conflict(n) do update set id = ?2, first_run = ?3, last_run = ?4, turn = ?5, at = case turn when ?5 then at else ?7 end`,
			r.N, r.ID, r.first, r.last, r.turn, r.Newest, at)
		if err != nil {
			return fmt.Errorf("cannot record which ledger has the database: %w", err)
		}
	}
	return nil
}

// ReadFile returns the rows of _ledgers in a database file that is not open.
func ReadFile(ctx context.Context, path string) (out []Row, err error) {
	db, err := sqlite.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	return Read(ctx, db)
}
