package agentdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"rouse/agentdb"
	"rouse/agentdb/sqlite"
	"rouse/internal/domain"
)

// book is a ledger as a database sees it.
type book struct {
	epochs []domain.Epoch
	newest int64
}

func (b book) Epochs() []domain.Epoch                   { return b.epochs }
func (b book) NewestRun(context.Context) (int64, error) { return b.newest, nil }

// ledgerOf is a ledger of one epoch.
func ledgerOf(id string, newest int64) book {
	return book{[]domain.Epoch{{ID: id, First: 1}}, newest}
}

// oldDatabase makes a database of the schema before ledgers were recorded, in which run 7 has written.
func oldDatabase(t *testing.T, path string) {
	t.Helper()
	steps := fstest.MapFS{}
	for i, name := range []string{"agent", "migrations", "views", "owner", "view_params", "quota_told"} {
		file := fmt.Sprintf("%04d_%s.sql", i+1, name)
		text, err := os.ReadFile(filepath.Join("migrations", file))
		if err != nil {
			t.Fatal(err)
		}
		steps[file] = &fstest.MapFile{Data: text}
	}

	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: 0x72736167, Migrations: steps})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Do(t.Context(), func(tx *sqlite.Tx) error {
		_, err := tx.SQL().Exec(`create table t (a);
			insert into _changelog(ts, run_id, actor, op, "table", pk, after) values ('2026-01-01T00:00:00.000Z', 7, 'agent', 'insert', 't', '{"rowid":1}', '{"a":1}');
			insert into _calls(run, key, op, result, at) values (7, 'p0', 'insert', '{"inserted":1,"ids":[1]}', '2999-01-01T00:00:00.000Z');`)
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A database from before takes the ledger of its home without a question, and its rows are that one's.
// One whose runs the ledger does not know asks, and what it holds is never taken for that of new runs.
func TestDatabaseFromBefore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db.sqlite")
	oldDatabase(t, path)

	_, err := agentdb.Open(t.Context(), agentdb.Options{Path: path, Ledger: ledgerOf("new", 3)})
	var unknown *agentdb.UnknownRunsError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "run 7") {
		t.Fatalf("a ledger that knows less: %v", err)
	}

	for range 2 {
		db, err := agentdb.Open(t.Context(), agentdb.Options{Path: path, Ledger: ledgerOf("mine", 9)})
		if err != nil {
			t.Fatal(err)
		}
		if _, stored, err := db.Replay(t.Context(), 7, "p0"); err != nil || !stored {
			t.Errorf("the journal of run 7: %v, %v", stored, err)
		}
		if found, err := db.Changes(t.Context(), agentdb.ChangeFilter{Run: 7}); err != nil || len(found) != 1 || found[0].OtherLedger {
			t.Errorf("the changelog of run 7: %+v, %v", found, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}

	// Who only reads it changes nothing.
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: path, Ledger: ledgerOf("mine", 9)})
	if err == nil {
		err = db.Close()
	}
	if after, e := os.ReadFile(path); err != nil || e != nil || !bytes.Equal(before, after) {
		t.Errorf("opened and closed, the file has changed: %v, %v", err, e)
	}

	if _, err := agentdb.Open(t.Context(), agentdb.Options{Path: path, Ledger: ledgerOf("other", 9)}); !errors.As(err, &unknown) {
		t.Errorf("another ledger: %v", err)
	}
}

// Which ledgers may have a database whose last runs are those of the ledger "a" up to run 10.
func TestLedgersOfDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pool := func(l agentdb.Ledger) *agentdb.Pool {
		p, err := agentdb.NewPool(agentdb.PoolOptions{Dir: dir, Ledger: l})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	with := func(l agentdb.Ledger, do func(*agentdb.DB)) error {
		p := pool(l)
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
			if _, err := db.Insert(t.Context(), agentdb.By{Run: run, Key: "p0"}, "t", []map[string]any{{"a": "x"}}); err != nil {
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
	asks := func(l agentdb.Ledger, part string) {
		t.Helper()
		var q *agentdb.QuarantinedError
		if err := with(l, func(*agentdb.DB) {}); !errors.As(err, &q) || !q.UnknownRuns || !strings.Contains(q.Reason, part) {
			t.Errorf("%+v: %v, want %q", l, err, part)
		}
		p := pool(l)
		uses, err := p.LedgerUses(t.Context())
		must(err)
		held, err := p.HoldUnknown(t.Context(), uses)
		if err != nil || len(held) != 1 || p.Quarantined("ann") == nil {
			t.Errorf("%+v: %v is held, %v", l, held, err)
		}
		must(p.Close())
	}

	must(with(ledgerOf("a", 10), func(db *agentdb.DB) {
		if _, err := db.CreateTable(t.Context(), agentdb.By{Run: 1}, agentdb.TableSpec{Name: "t", Purpose: "p", Columns: []agentdb.Column{{Name: "a", Type: "TEXT"}}}); err != nil {
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

	// An older copy is not let in with its own id, which would give the ids again, but with a new epoch.
	p := pool(ledgerOf("a", 9))
	if err := p.Accept(t.Context(), "ann"); err == nil {
		t.Error("an older ledger goes on in the same epoch")
	}
	must(p.Close())
	older := book{[]domain.Epoch{{ID: "a", First: 1, Last: 9}, {ID: "a2", First: 11}}, 10}
	asks(older, "run 10 has written into it")
	p = pool(older)
	must(p.Accept(t.Context(), "ann"))
	must(p.Close())
	must(with(older, func(db *agentdb.DB) {
		insert(3)(db) // which it knows: its call was made
		rows(2)(db)
		insert(11)(db)
		rows(3)(db)
		if _, err := db.Insert(t.Context(), agentdb.By{Run: 10, Key: "p1"}, "t", []map[string]any{{"a": "x"}}); err == nil {
			t.Error("a run writes that the ledger cannot have")
		}
	}))

	// Another ledger has runs of the same numbers, and keeps them apart.
	p = pool(ledgerOf("b", 3))
	must(p.Accept(t.Context(), "ann"))
	must(p.Close())
	must(with(ledgerOf("b", 3), func(db *agentdb.DB) {
		insert(3)(db)
		rows(4)(db)
		if u, err := db.Undo(t.Context(), agentdb.By{}, agentdb.UndoSpec{Run: 3}); err != nil || !u.Done || u.Changes != 1 {
			t.Errorf("%+v, %v", u, err)
		}
		rows(3)(db)
		if u, err := db.Undo(t.Context(), agentdb.By{}, agentdb.UndoSpec{Run: 10}); err != nil || u.Changes != 0 {
			t.Errorf("the undo of a run that is another's: %+v, %v", u, err)
		}
	}))
}
