package replicate

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/backup"
	"rouse/cmd/internal/cmdtest"
	"rouse/internal/ledger"
	ledgerstore "rouse/internal/ledger/store"
	"rouse/internal/storage/objects"
	"rouse/internal/storage/replica"
)

// place is a directory that blocks all requests while it is held.
type place struct {
	objects.Folder
	held atomic.Pointer[chan struct{}]
}

func (p *place) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if held := p.held.Load(); held != nil {
		select {
		case <-*held:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return p.Folder.Put(ctx, name, r, size)
}

// process holds the parts of a daemon that use a home.
type process struct {
	t    testing.TB
	l    *ledger.Ledger
	pool *pool.Pool
	r    *Replicator
	end  func()
}

func start(t testing.TB, home string, store replica.Store) *process {
	t.Helper()
	return startBy(t, home, store, time.Now)
}

// startBy is like start, with a given wall clock.
func startBy(t testing.TB, home string, store replica.Store, now func() time.Time) *process {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(home, "ledger.db"), Blobs: filepath.Join(home, "blobs")})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pool.New(pool.Options{Dir: filepath.Join(home, "agents"), Ledger: l})
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(t.Context(), Options{Home: home, Ledger: l, Databases: pool, Store: store, To: "the place", Keep: time.Hour, Goodbye: time.Second, Now: now,
		Info: func(context.Context) (backup.Info, error) {
			return backup.Info{Home: home, Schema: ledgerstore.Schema()}, nil
		},
		Configs: func() ([]backup.Config, error) { return nil, nil }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx) // the test does not need the error
	}()
	return &process{t, l, pool, r, func() {
		stop()
		<-done
		r.Finish(context.Background())
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		r.LedgerClosed()
	}}
}

func (p *process) write(agent string) {
	p.t.Helper()
	db, release, err := p.pool.Get(p.t.Context(), agent)
	if err != nil {
		p.t.Fatal(err)
	}
	defer release()
	if _, err := db.Execute(p.t.Context(), changelog.By{Actor: "user"}, agentdb.ExecuteSpec{SQL: "create table if not exists x (a); insert into x values (1)"}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) untilCopied() {
	p.t.Helper()
	cmdtest.Until(p.t, "everything to be copied", func() bool {
		s := p.r.State()
		return s.Waiting == 0 && s.Problem == "" && !s.LastSuccess.IsZero()
	})
}

// A place that does not answer delays no write, and shutdown waits for it only up to the limit.
// After a restart, an unchanged home is recognized without opening its databases.
func TestSlowPlace(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	store := &place{Folder: objects.Folder{Path: t.TempDir()}}
	p := start(t, home, store)
	const agents = 30 // more than stay open at once
	for i := range agents {
		p.write(fmt.Sprint("agent", i))
	}
	p.untilCopied()

	held := make(chan struct{})
	store.held.Store(&held)
	for range 3 {
		begun := time.Now()
		for i := range agents {
			p.write(fmt.Sprint("agent", i))
		}
		if took := time.Since(begun); took > 20*time.Second { // generous: the machine may be busy
			t.Errorf("%d writes took %s", agents, took)
		}
	}
	if s := p.r.State(); s.Waiting == 0 || s.Behind == 0 {
		t.Errorf("nothing is behind: %+v", s)
	}
	store.held.Store(nil)
	close(held)
	p.untilCopied()
	p.end()

	databases := func() (names []string) {
		objects, err := store.List(t.Context(), "db/", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			names = append(names, o.Name)
		}
		return names
	}
	before := databases()
	p = start(t, home, store)
	p.untilCopied()
	if logs, err := filepath.Glob(filepath.Join(home, "agents", "*", "db.sqlite-wal")); err != nil || len(logs) > 0 {
		t.Errorf("databases were opened: %v %v", logs, err)
	}
	if after := databases(); !slices.Equal(before, after) {
		t.Errorf("databases were copied once more: %d files, then %d", len(before), len(after))
	}

	// Shutdown ends although the place does not answer.
	held = make(chan struct{})
	store.held.Store(&held)
	p.write("agent0")
	begun := time.Now()
	p.end()
	if took := time.Since(begun); took > goodbye {
		t.Errorf("the end took %s", took)
	}
	store.held.Store(nil)
	close(held)

	p = start(t, home, store)
	p.untilCopied()
	p.end()
	to := t.TempDir()
	if err := Fetch(t.Context(), store, time.Time{}, to); err != nil {
		t.Fatal(err)
	}
	if c, err := backup.Check(t.Context(), to, backup.Hear{}); err != nil || c.Audit.Violations > 0 {
		t.Errorf("%+v, %v", c.Audit, err)
	}
	if found, err := filepath.Glob(filepath.Join(to, "home", "agents", "*", "db.sqlite")); err != nil || len(found) != agents {
		t.Errorf("%d databases (%v)", len(found), err)
	}
}
