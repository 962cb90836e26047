// Package lineage decides which ledger may use an agent's database. The database has a row for each
// ledger, and for each epoch of one, whose runs have written into it. A ledger that was lost or
// restored could give the same run ids again; such a database is not opened.
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

// Ledger is what a database has to know of the ledger whose runs write into it. *ledger.Ledger is
// one.
type Ledger interface {
	Epochs() []domain.Epoch                       // in order; the last goes on
	NewestRun(ctx context.Context) (int64, error) // the highest run id that it has given
}

// OfRun is SQL for the number of the ledger that the run ?1 belongs to. It is null, which no
// column of it may be, for a run that no ledger which has the database can have.
const OfRun = `(select n from _ledgers where ?1 between first_run and last_run)`

// OfOther is SQL for whether a row of the changelog is of a run that the ledger does not
// know.
const OfOther = `not exists (select 1 from _ledgers where n = ledger and run_id between first_run and last_run)`

// UnknownRunsError is a database with runs that the ledger does not know: the ledger was lost,
// restored to an older state, or is another one. It may give the same run ids again.
type UnknownRunsError struct{ Path, Reason string }

func (e *UnknownRunsError) Error() string {
	return fmt.Sprintf("the database %s cannot be used: %s", e.Path, e.Reason)
}

// Row is a row of _ledgers, for one epoch of a ledger.
type Row struct {
	N           int64
	ID          string // "" until a ledger takes a new database
	first, last int64
	turn        int64
	Newest      int64
}

// Read returns the rows of _ledgers in the order of their turns; the last one has the database.
func Read(ctx context.Context, q sqlite.Querier) ([]Row, error) {
	return sqlite.Collect(ctx, q, func(scan sqlite.Scanner) (r Row, err error) {
		err = scan(&r.N, &r.ID, &r.first, &r.last, &r.turn, &r.Newest)
		return r, err
	}, `select n, id, first_run, last_run, turn, newest from _ledgers order by turn, n`)
}

// Unknown returns the row that has the database, and why the ledger with these epochs, which has given
// no run after newest, must not use it. why is "" if the ledger may use the database.
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

// Bind returns the rows of a database that the ledger with these epochs uses from now on, in the order
// of their turns. If claimed is true, a holder without an id becomes the first epoch.
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
			r.first = 0 // what no run has written
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

// ReadFile returns the rows of _ledgers of a database that is not open.
func ReadFile(ctx context.Context, path string) (out []Row, err error) {
	db, err := sqlite.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	return Read(ctx, db)
}
