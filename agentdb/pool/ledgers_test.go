package pool_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/lineage"
	"rouse/agentdb/pool"
	"rouse/agentdb/schema"
	"rouse/internal/domain"
)

// book is a lineage.Ledger for tests.
type book struct {
	epochs []domain.Epoch
	newest int64
}

func (b book) Epochs() []domain.Epoch                   { return b.epochs }
func (b book) NewestRun(context.Context) (int64, error) { return b.newest, nil }

// ledgerOf returns a ledger with one epoch.
func ledgerOf(id string, newest int64) book {
	return book{[]domain.Epoch{{ID: id, First: 1}}, newest}
}

// The test checks which ledgers accept a database with runs of the ledger "a" up to run 10.
func TestLedgersOfDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openPool := func(l lineage.Ledger) *pool.Pool {
		p, err := pool.New(pool.Options{Dir: dir, Ledger: l})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	with := func(l lineage.Ledger, do func(*agentdb.DB)) error {
		p := openPool(l)
		defer func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}()
		db, release, err := p.Get(t.Context(), "ann")
		if err == nil {
			do(db)
			release()
		}
		return err
	}
	insert := func(run int64) func(*agentdb.DB) {
		return func(db *agentdb.DB) {
			if _, err := db.Insert(t.Context(), changelog.By{Run: run, Key: "p0"}, "t", []map[string]any{{"a": "x"}}); err != nil {
				t.Errorf("run %d: %v", run, err)
			}
		}
	}
	rows := func(want int) func(*agentdb.DB) {
		return func(db *agentdb.DB) {
			q, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select a from t"})
			if err != nil || len(q.Rows) != want {
				t.Errorf("%d rows, not %d: %v", len(q.Rows), want, err)
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	asks := func(l lineage.Ledger, part string) {
		t.Helper()
		var q *pool.QuarantinedError
		if err := with(l, func(*agentdb.DB) {}); !errors.As(err, &q) || !q.UnknownRuns || !strings.Contains(q.Reason, part) {
			t.Errorf("%+v: %v, want %q", l, err, part)
		}
		p := openPool(l)
		uses, err := p.LedgerUses(t.Context())
		must(err)
		held, err := p.HoldUnknown(t.Context(), uses)
		if err != nil || len(held) != 1 || p.Quarantined("ann") == nil {
			t.Errorf("%+v: %v is held, %v", l, held, err)
		}
		must(p.Close())
	}

	must(with(ledgerOf("a", 10), func(db *agentdb.DB) {
		if _, err := db.CreateTable(t.Context(), changelog.By{Run: 1}, schema.TableSpec{Name: "t", Purpose: "p", Columns: []schema.Column{{Name: "a", Type: "TEXT"}}}); err != nil {
			t.Error(err)
		}
		insert(3)(db)
		insert(10)(db)
	}))
	must(with(ledgerOf("a", 10), rows(2)))
	must(with(ledgerOf("a", 50), rows(2)))

	// An older copy, and another ledger.
	asks(ledgerOf("a", 9), "run 10 has written into it")
	asks(ledgerOf("b", 99), "of another ledger")

	// An older copy is not accepted with its own epoch, which would reuse the ids, but with a new
	// epoch.
	p := openPool(ledgerOf("a", 9))
	if err := p.Recovery.Accept(t.Context(), "ann"); err == nil {
		t.Error("an older ledger goes on in the same epoch")
	}
	must(p.Close())
	older := book{[]domain.Epoch{{ID: "a", First: 1, Last: 9}, {ID: "a2", First: 11}}, 10}
	asks(older, "run 10 has written into it")
	p = openPool(older)
	must(p.Recovery.Accept(t.Context(), "ann"))
	must(p.Close())
	must(with(older, func(db *agentdb.DB) {
		insert(3)(db) // known, because its call was made
		rows(2)(db)
		insert(11)(db)
		rows(3)(db)
		if _, err := db.Insert(t.Context(), changelog.By{Run: 10, Key: "p1"}, "t", []map[string]any{{"a": "x"}}); err == nil {
			t.Error("a run writes that the ledger cannot have")
		}
	}))

	// Another ledger has runs with the same numbers and keeps them apart.
	p = openPool(ledgerOf("b", 3))
	must(p.Recovery.Accept(t.Context(), "ann"))
	must(p.Close())
	must(with(ledgerOf("b", 3), func(db *agentdb.DB) {
		insert(3)(db)
		rows(4)(db)
		if u, err := db.Undo(t.Context(), changelog.By{}, changelog.UndoSpec{Run: 3}); err != nil || !u.Done || u.Changes != 1 {
			t.Errorf("%+v, %v", u, err)
		}
		rows(3)(db)
		if u, err := db.Undo(t.Context(), changelog.By{}, changelog.UndoSpec{Run: 10}); err != nil || u.Changes != 0 {
			t.Errorf("the undo of a run that is another's: %+v, %v", u, err)
		}
	}))
}
