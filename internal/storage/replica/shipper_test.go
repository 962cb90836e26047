package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/objects"
	"rouse/internal/storage/sqlite"
)

const mark = 0x74657374

// home is a database with its follower.
type home struct {
	t       testing.TB
	path    string
	client  *Client
	f       *Shipper
	db      *sqlite.DB
	keeper  *dbfile.Keeper
	at      int64
	written int
}

func newHome(t testing.TB) *home {
	t.Helper()
	dir := t.TempDir()
	h := &home{t: t, path: filepath.Join(dir, "db.sqlite"), client: NewClient(objects.Folder{Path: t.TempDir()}, "dbs/x")}
	h.follow()
	h.open()
	return h
}

// follow starts a new follower, like a new process.
func (h *home) follow() {
	h.f = New(h.path, filepath.Join(filepath.Dir(h.path), "state.json"), h.client)
}

func (h *home) open() {
	h.t.Helper()
	s, whole, err := dbfile.Inspect(h.path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	h.keeper = dbfile.NewKeeper(h.path, s)
	h.db, err = sqlite.Open(h.t.Context(), sqlite.Options{Path: h.path, ApplicationID: mark, AutoVacuum: true, SkipCheck: whole, BeforeWrite: h.keeper.MarkOpen,
		Migrations: fstest.MapFS{"0001_x.sql": {Data: []byte("create table x (id integer primary key, v text);")}}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.keeper.SetChecked()
	if s.State == "" || dbfile.HasLog(h.path) {
		if err := h.keeper.MarkOpen(); err != nil {
			h.t.Fatal(err)
		}
	}
	h.f.Opened(h.t.Context(), h.db, s, func() {})
}

func (h *home) close() {
	h.t.Helper()
	if err := h.db.Close(); err != nil {
		h.t.Fatal(err)
	}
	if err := h.keeper.MarkClosed(); err != nil {
		h.t.Fatal(err)
	}
	h.f.Closed()
}

func (h *home) write(rows, bytes int) {
	h.t.Helper()
	err := h.db.Do(h.t.Context(), func(tx *sqlite.Tx) error {
		for range rows {
			if _, err := tx.Exec("insert into x (v) values (?)", strings.Repeat(fmt.Sprint(h.written), bytes)); err != nil {
				return err
			}
			h.written++
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *home) exec(sql string) {
	h.t.Helper()
	if err := h.db.Do(h.t.Context(), func(tx *sqlite.Tx) error { _, err := tx.SQL().Exec(sql); return err }); err != nil {
		h.t.Fatal(err)
	}
}

func (h *home) ship() int {
	h.t.Helper()
	if err := h.f.Prepare(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	if err := h.f.Cut(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.at++
	n, err := h.f.Ship(h.t.Context(), h.at)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.f.Drain(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// content returns the whole content of a database.
func content(t testing.TB, path string) string {
	t.Helper()
	db, err := sqlite.OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var out string
	if err := db.QueryRow("select count(*) || ' ' || coalesce(sum(id), 0) || ' ' || coalesce(sum(length(v)), 0) || ' ' || coalesce(max(v), '') || ' ' || (select integrity_check from pragma_integrity_check) from x").Scan(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (h *home) same() {
	h.t.Helper()
	versions, err := Versions(h.t.Context(), h.client)
	if err != nil {
		h.t.Fatal(err)
	}
	to := filepath.Join(h.t.TempDir(), "restored.sqlite")
	if err := Restore(h.t.Context(), h.client, versions[len(versions)-1].TX, to); err != nil {
		h.t.Fatal(err)
	}
	if got, want := content(h.t, to), content(h.t, h.path); got != want {
		h.t.Fatalf("restored %.200s, want %.200s", got, want)
	}
}

// The copies equal the written data in any order of writes, closes, opens and drains. The whole
// database is shipped only if necessary.
func TestFollows(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.write(10, 100)
	if n := h.ship(); n != 1 {
		t.Errorf("the first time, %d transactions", n)
	}
	h.same()

	random := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		switch random.IntN(8) {
		case 0:
			h.close()
			h.open()
		case 1:
			h.exec(fmt.Sprintf("delete from x where id %% 7 = %d", random.IntN(7)))
		case 2:
			h.exec("pragma incremental_vacuum(10)")
		case 3:
			h.write(random.IntN(1500), 1+random.IntN(500)) // also more than the log holds before a drain
		default:
			h.write(random.IntN(5), 1+random.IntN(100))
		}
		if random.IntN(4) > 0 {
			if err := h.f.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			if h.f.base != "" {
				t.Fatal("it is shipped whole, although all of it was followed")
			}
			h.ship()
			if info, err := os.Stat(h.path + "-wal"); err == nil && info.Size() > 8*drainAt {
				t.Fatalf("the log has %d bytes", info.Size())
			}
		}
		if random.IntN(10) == 0 {
			h.ship()
			h.same()
		}
	}
	h.ship()
	h.same()
	h.close()
	if !h.f.Shipped() {
		t.Error("what was shipped and closed is not known to be")
	}

	// Another process continues: the whole database does not have to be shipped.
	h.follow()
	if !h.f.Shipped() {
		t.Error("the next process does not know that it is shipped")
	}
	h.open()
	h.write(1, 1)
	if err := h.f.Prepare(t.Context()); err != nil || h.f.base != "" {
		t.Errorf("it is shipped whole (%v)", err)
	}
	h.ship()
	h.same()
	h.close()

	// A write without a follower.
	unfollowed := *h
	unfollowed.f = New(h.path, filepath.Join(t.TempDir(), "state.json"), NewClient(objects.Folder{Path: t.TempDir()}, "y"))
	unfollowed.open()
	unfollowed.write(3, 3)
	unfollowed.close()
	h.follow()
	if h.f.Shipped() {
		t.Error("what another process wrote is taken for shipped")
	}
	h.open()
	h.write(1, 1)
	h.ship()
	h.same()

	if err := Compact(context.Background(), h.client); err != nil {
		t.Fatal(err)
	}
	h.same()
	if err := Checkpoint(context.Background(), h.client, 0); err != nil {
		t.Fatal(err)
	}
	h.same()
	h.write(4, 4)
	h.ship()
	h.same()
	h.close()
}

// A log that cannot be shipped is released at its limit. The whole database is shipped next.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	if raced {
		t.Skip("one goroutine writes 66 MiB")
	}
	h := newHome(t)
	h.write(1, 1)
	h.ship()
	for range 66 {
		h.write(1, 1<<20)
	}
	if !h.f.Bound() {
		t.Fatalf("a log of %d bytes is kept", h.f.Waiting())
	}
	before := h.f.Waiting()
	for range 66 {
		h.write(1, 1<<20)
	}
	if after := h.f.Waiting(); after > 2*before {
		t.Errorf("the log went on from %d to %d bytes", before, after)
	}
	h.ship()
	h.same()
	h.write(1, 1)
	if n := h.ship(); n != 1 {
		t.Errorf("%d transactions", n)
	}
	h.same()
	h.close()
}

// A replaced database is shipped whole, so that the copies of both files are not mixed.
func TestReplacedFile(t *testing.T) {
	t.Parallel()
	h, other := newHome(t), newHome(t)
	h.write(500, 100)
	other.write(20, 7)
	h.ship()
	h.close()
	other.close()
	for _, part := range []string{"", "-seal"} {
		content, err := os.ReadFile(other.path + part)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.path+part, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if h.f.Shipped() {
		t.Error("another file is taken for the one that is shipped")
	}
	h.open()
	h.ship()
	h.same()
	h.close()
}

// Prune keeps the newest merged state that is old enough and all later states, but no older ones.
func TestPrune(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for range 2 * fanIn {
		h.write(1, 10)
		h.ship()
		if err := Compact(t.Context(), h.client); err != nil {
			t.Fatal(err)
		}
	}
	if err := Checkpoint(t.Context(), h.client, 0); err != nil {
		t.Fatal(err)
	}
	checkpointed := h.f.known.TX
	for range 5 {
		h.write(1, 10)
		h.ship()
	}
	if err := Prune(t.Context(), h.client, time.UnixMilli(h.at)); err != nil {
		t.Fatal(err)
	}
	h.same()
	versions, err := Versions(t.Context(), h.client)
	if err != nil || len(versions) != 6 || versions[0].TX != checkpointed {
		t.Fatalf("%v (%v)", versions, err)
	}
	for i, v := range versions {
		to := filepath.Join(t.TempDir(), "restored.sqlite")
		if err := Restore(t.Context(), h.client, v.TX, to); err != nil {
			t.Fatal(err)
		}
		if got := content(t, to); !strings.HasPrefix(got, fmt.Sprint(2*fanIn+i, " ")) {
			t.Errorf("version %d: %.100s", v.TX, got)
		}
	}
	h.close()
}

// BenchmarkWrites compares writes that are shipped after a second with writes without a follower.
func BenchmarkWrites(b *testing.B) {
	for _, followed := range []bool{false, true} {
		b.Run(map[bool]string{false: "alone", true: "followed"}[followed], func(b *testing.B) {
			h := newHome(b)
			if !followed {
				h.f.letGo()
				h.f.db.Observe(func() {}, func() {})
			}
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for followed {
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
						h.ship()
					}
				}
			}()
			for b.Loop() {
				h.write(1, 100)
			}
			close(stop)
			<-done
		})
	}
}

// BenchmarkRestore compares a restore of 200,000 rows with a copy of the file.
func BenchmarkRestore(b *testing.B) {
	h := newHome(b)
	for range 200 {
		h.write(1000, 20)
		h.ship()
		if err := Compact(b.Context(), h.client); err != nil {
			b.Fatal(err)
		}
	}
	tx := h.f.known.TX
	h.close()
	b.Run("copy", func(b *testing.B) {
		for b.Loop() {
			if err := sqlite.CopyFile(b.Context(), h.path, filepath.Join(b.TempDir(), "copy.sqlite")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			if err := Restore(b.Context(), h.client, tx, filepath.Join(b.TempDir(), "restored.sqlite")); err != nil {
				b.Fatal(err)
			}
		}
	})
}
