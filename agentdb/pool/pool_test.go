package pool_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/pool"
	"rouse/agentdb/schema"
	"rouse/agentdb/transfer"
	"rouse/internal/contract"
	"rouse/internal/storage/sqlite"
)

func newPool(t *testing.T, o pool.Options) *pool.Pool {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}

	p, err := pool.New(o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { p.Close() })
	return p
}

// OSA-50: each agent has its own file, created on first use.
func TestPoolIsLazy(t *testing.T) {
	row := contract.Of(t, "OSA-50")
	dir := t.TempDir()
	p := newPool(t, pool.Options{Dir: dir, MaxOpen: 2, Quota: func(agent string) int64 {
		if agent == "small" {
			return 1
		}
		return 0
	}})
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatalf("%v, %v", entries, err)
	}

	for i := range 6 {
		name := fmt.Sprint("agent-", i)
		db, release, err := p.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}

		expenses(t, db)
		for _, table := range []string{row.Quote("_tables_meta"), row.Quote("_changelog"), row.Quote("_views")} {
			system(t, db, "select count(*) from "+table)
		}
		if mode := system(t, db, "pragma journal_mode"); mode != row.Quote("wal") {
			t.Errorf("the mode is %s", mode)
		}
		release()
		release() // the second call has no effect
		if _, err := os.Stat(filepath.Join(dir, name, row.Quote("db.sqlite"))); err != nil {
			t.Error(err)
		}
	}

	if n := pool.OpenFiles(p); n != 2 {
		t.Errorf("%d files are open, want the 2 used last", n)
	}

	usual := newPool(t, pool.Options{})
	with(t, usual, "ann", func(*agentdb.DB) {})
	if n := pool.OpenFiles(usual); n != 1 {
		t.Errorf("%d files are kept open where nothing says how many", n)
	}

	db, release, err := p.Get(t.Context(), "agent-0") // closed meanwhile
	if err != nil {
		t.Fatal(err)
	}
	defer release()

	if got := ask(t, db, "select count(*) from expenses"); got != "[[0]]" {
		t.Error(got)
	}

	small, release2, err := p.Get(t.Context(), "small")
	if err != nil {
		t.Fatal(err)
	}
	defer release2()

	_, err = small.CreateTable(t.Context(), changelog.By{}, schema.TableSpec{Name: "t", Purpose: "p", Columns: []schema.Column{{Name: "a", Type: "TEXT"}}})
	wantError(t, err, "rejected", "", "quota")

	for _, name := range []string{"", "..", "a/b", "../x", "a b", "-a", strings.Repeat("a", 64)} {
		if _, _, err := p.Get(t.Context(), name); err == nil {
			t.Errorf("%q is no agent's name", name)
		}
	}
}

// OSA-62: a changed quota applies to an open file from the next Get.
func TestPoolAsksForQuotas(t *testing.T) {
	var quota int64 = 1
	p := newPool(t, pool.Options{Quota: func(string) int64 { return quota }})
	for _, c := range []struct {
		quota   int64
		refused bool
	}{{1, true}, {1 << 20, false}, {1, true}, {0, false}} {
		quota = c.quota
		db, release, err := p.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer release() // so that the file stays open

		_, err = db.CreateTable(t.Context(), changelog.By{}, schema.TableSpec{Name: fmt.Sprint("t", c.quota), Purpose: "p", Columns: []schema.Column{{Name: "a", Type: "TEXT"}}})
		if c.refused {
			wantError(t, err, "rejected", "", "quota")
		} else if err != nil {
			t.Errorf("with a quota of %d: %v", c.quota, err)
		}
	}
}

// All files in use stay open, and each agent has one writer.
func TestPoolUnderConcurrency(t *testing.T) {
	p := newPool(t, pool.Options{MaxOpen: 2})
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			db, release, err := p.Get(context.Background(), fmt.Sprint("a", i%6))
			if err != nil {
				t.Error(err)
				return
			}
			defer release()

			if _, err := db.Import(context.Background(), changelog.By{}, transfer.ImportSpec{Table: "t", Name: "f.csv", Source: strings.NewReader("a,b\n1,2\n")}); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	for i := range 6 {
		db, release, err := p.Get(t.Context(), fmt.Sprint("a", i))
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, db, "select count(*) from t"); got != "[[10]]" {
			t.Errorf("agent %d: %s", i, got)
		}
		release()
	}
}

// The error for a damaged file names the agent. The file is unchanged and works again after
// repair.
func TestPoolReportsDamage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bad", "db.sqlite")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}

	p := newPool(t, pool.Options{Dir: dir})
	_, _, err := p.Get(t.Context(), "bad")
	var corrupt *sqlite.CorruptError
	if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), "agent bad") {
		t.Fatalf("error %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	db, release, err := p.Get(t.Context(), "bad")
	if err != nil {
		t.Fatal(err)
	}

	expenses(t, db)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	insert(t, db, "expenses", map[string]any{"amount": 1}) // in use: closed on release
	release()
	if _, err := db.Insert(t.Context(), changelog.By{}, "expenses", []map[string]any{{"amount": 1}}); !errors.Is(err, sqlite.ErrClosed) {
		t.Errorf("error %v, want a closed file", err)
	}
	if _, _, err := p.Get(t.Context(), "bad"); err == nil {
		t.Error("a closed pool lends")
	}
}

// OSA-50: a thousand agents need no more open files than the pool keeps, and a long use keeps its
// file open. ROUSE_TEST_AGENTS is the number of agents; .ci/run sets 300.
func TestPoolOfManyAgents(t *testing.T) {
	const most = 8
	agents, err := strconv.Atoi(os.Getenv("ROUSE_TEST_AGENTS"))
	if err != nil {
		agents = 40
	}

	dir, made := t.TempDir(), filepath.Join(t.TempDir(), "db.sqlite")
	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: made, Agent: "a"})
	if err != nil {
		t.Fatal(err)
	}

	expenses(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	for i := range agents {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint("a", i)), 0o700); err != nil {
			t.Fatal(err)
		}
		copyFiles(t, made, filepath.Join(dir, fmt.Sprint("a", i), "db.sqlite"))
	}

	p := newPool(t, pool.Options{Dir: dir, MaxOpen: most})
	pinned := lent(t, p, "a0")
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := worker; i < agents; i += 4 {
				db, release, err := p.Get(context.Background(), fmt.Sprint("a", i))
				if err != nil {
					t.Error(err)
					return
				}

				if _, err := db.Query(context.Background(), agentdb.QuerySpec{SQL: "select count(*) from expenses"}); err != nil {
					t.Error(err)
				}
				if n := pool.OpenFiles(p); n > most+8 { // files that four users just use or close
					t.Errorf("%d files are open", n)
				}

				release()
			}
		})
	}

	all.Wait()
	insert(t, pinned, "expenses", map[string]any{"amount": 1})
	if n := pool.OpenFiles(p); n > most {
		t.Errorf("%d files are open", n)
	}
}

// A file that is unused for a while is closed, which stores its checksum.
func TestPoolClosesIdleFiles(t *testing.T) {
	dir := t.TempDir()
	p := newPool(t, pool.Options{Dir: dir, IdleTimeout: time.Millisecond})
	with(t, p, "ann", func(db *agentdb.DB) { expenses(t, db) })
	for pool.OpenFiles(p) > 0 { // until it is closed
		time.Sleep(time.Millisecond)
	}

	if text, err := os.ReadFile(filepath.Join(dir, "ann", "db.sqlite-seal")); err != nil || !strings.Contains(string(text), `"closed"`) {
		t.Errorf("%s, %v", text, err)
	}

	with(t, p, "ann", func(db *agentdb.DB) {
		if got := ask(t, db, "select count(*) from expenses"); got != "[[0]]" {
			t.Error(got)
		}
	})
}
