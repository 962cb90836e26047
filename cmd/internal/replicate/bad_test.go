package replicate

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rouse/cmd/internal/backup"
	"rouse/cmd/internal/cmdtest"
	"rouse/internal/storage/objects"
)

// disk is a directory on a simulated disk with limited space. A write that does not fit is cut off.
type disk struct {
	objects.Folder
	room atomic.Int64
}

func newDisk(t testing.TB) *disk {
	d := &disk{Folder: objects.Folder{Path: t.TempDir()}}
	d.room.Store(1 << 40)
	return d
}

func (d *disk) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	left := d.room.Add(-size)
	if left >= 0 {
		return d.Folder.Put(ctx, name, r, size)
	}
	d.room.Add(size)
	return d.Folder.Put(ctx, name, io.MultiReader(io.LimitReader(r, size/2), full{}), size)
}

// full is a reader that fails because the disk has no space left.
type full struct{}

func (full) Read([]byte) (int, error) { return 0, syscall.ENOSPC }

// home is a home with agents that write.
func newHome(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// rows returns the number of rows each agent has when the home is restored as of the given time. A
// zero time means the newest state.
func rows(t *testing.T, store objects.Store, at time.Time) map[string]int {
	t.Helper()
	to := t.TempDir()
	if err := Fetch(t.Context(), store, at, to); err != nil {
		t.Fatal(err)
	}
	if c, err := backup.Check(t.Context(), to, backup.Hear{}); err != nil || c.Audit.Violations > 0 {
		t.Errorf("%+v, %v", c.Audit, err)
	}
	found, err := filepath.Glob(filepath.Join(to, "home", "agents", "*", "db.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, path := range found {
		db, err := sql.Open("sqlite", path+"?_pragma=query_only(1)")
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := db.QueryRowContext(t.Context(), "select count(*) from x").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(filepath.Dir(path))] = n
	}
	return out
}

// A full place delays no write and corrupts no existing copy. Old versions are removed there to
// free space. Once there is space, all data arrives.
func TestFullPlace(t *testing.T) {
	t.Parallel()
	store := newDisk(t)
	p := start(t, newHome(t), store)
	for range 3 {
		p.write("a")
	}
	p.untilCopied()

	store.room.Store(100)
	for range 5 {
		p.write("a")
		p.write("b")
	}
	cmdtest.Until(t, "the problem", func() bool { return strings.Contains(p.r.State().Problem, "no space left") })
	if s := p.r.State(); s.Waiting == 0 || s.Behind == 0 {
		t.Errorf("nothing is behind: %+v", s)
	}
	if got := rows(t, store, time.Time{}); got["a"] != 3 || len(got) != 1 {
		t.Errorf("what was copied before gives %v", got)
	}
	store.room.Store(1 << 40)
	p.untilCopied()
	p.end()
	if got := rows(t, store, time.Time{}); got["a"] != 8 || got["b"] != 5 {
		t.Errorf("in the end it gives %v", got)
	}
}

// Old versions are removed even if no round succeeds. Otherwise a full place would stay full.
func TestFullPlaceMakesRoom(t *testing.T) {
	t.Parallel()
	store, home := newDisk(t), newHome(t)
	clock := newClock()
	p := startBy(t, home, store, clock.now)
	for i := range 3 { // one version each: whole at first, incremental later
		p.write("a")
		p.untilCopied()
		p.end()
		clock.ahead(2 * time.Hour)
		p = startBy(t, home, store, clock.now) // simulates the next day
		_ = i
	}
	p.write("a")
	p.untilCopied()
	before := objectsOf(t, store)

	p.end()
	clock.ahead(2 * time.Hour)
	store.room.Store(0)
	p = startBy(t, home, store, clock.now)
	p.write("a")
	cmdtest.Until(t, "the problem", func() bool { return p.r.State().Problem != "" })
	cmdtest.Until(t, "room", func() bool { return len(objectsOf(t, store)) < len(before) })
	store.room.Store(1 << 40)
	p.untilCopied()
	p.end()
	if got := rows(t, store, time.Time{}); got["a"] != 5 {
		t.Errorf("in the end it gives %v of 5", got)
	}
}

func objectsOf(t *testing.T, store objects.Store) (names []string) {
	t.Helper()
	all, err := store.List(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		names = append(names, o.Name)
	}
	return names
}

// clock is a wall clock that tests can set.
type clock struct{ apart atomic.Int64 }

func newClock() *clock { return &clock{} }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.apart.Load())) }

func (c *clock) ahead(d time.Duration) { c.apart.Add(int64(d)) }

// No version is lost if the clock jumps ahead by more than the retention time and is then
// corrected. No instant repeats if the clock is set back.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	store, c := newDisk(t), newClock()
	p := startBy(t, newHome(t), store, c.now)
	p.write("a")
	p.untilCopied()
	first := c.now()

	for _, d := range []time.Duration{1000 * time.Hour, -1000 * time.Hour, -5 * time.Hour, 5 * time.Hour} {
		c.ahead(d)
		p.r.rounds.Lock()
		clear(p.r.tended) // simulates an hour passing
		p.r.rounds.Unlock()
		p.write("a")
		p.untilCopied()
	}
	p.end()
	if got := rows(t, store, first); got["a"] != 1 {
		t.Errorf("the state of before the jumps: %v", got)
	}
	if got := rows(t, store, time.Time{}); got["a"] != 5 {
		t.Errorf("the newest: %v", got)
	}

	instants, _, err := noted(t.Context(), store) // rounds in which the ledger did not change
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(instants) || len(slices.Compact(slices.Clone(instants))) != len(instants) || len(instants) < 4 {
		t.Errorf("the instants are %v", instants)
	}
}

// The last intact copy of a quarantined database is kept. The database is reported and does not
// delay the others.
func TestQuarantinedDatabase(t *testing.T) {
	t.Parallel()
	store, home := newDisk(t), newHome(t)
	p := start(t, home, store)
	for range 3 {
		p.write("a")
		p.write("b")
	}
	p.untilCopied()
	p.end()

	at := filepath.Join(home, "agents", "a", "db.sqlite")
	content, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	for i := range content[4096:] {
		content[4096+i] ^= 0x5a
	}
	if err := os.WriteFile(at, content, 0o600); err != nil {
		t.Fatal(err)
	}
	p = start(t, home, store)
	if _, release, err := p.pool.Get(t.Context(), "a"); err == nil {
		release()
		t.Fatal("it is not quarantined")
	}
	for range 2 {
		p.write("b")
		p.untilCopied()
	}
	cmdtest.Until(t, "its name", func() bool { return slices.Equal(p.r.State().Unusable, []string{"a"}) })
	p.end()
	if got := rows(t, store, time.Time{}); got["a"] != 3 || got["b"] != 5 {
		t.Errorf("it gives %v", got)
	}
}

// The first copy of many databases opens only some at a time. It includes writes that happen
// meanwhile.
func TestManyAgents(t *testing.T) {
	const agents = 3 * together
	store, home := newDisk(t), newHome(t)
	p := start(t, home, newDisk(t)) // warm-up; the result is discarded
	for i := range agents {
		p.write(fmt.Sprint("agent", i))
	}
	p.end()
	if err := os.RemoveAll(filepath.Join(home, "replica")); err != nil {
		t.Fatal(err)
	}

	before := 0
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		before = len(open)
	}
	p = start(t, home, store)
	most, over := make(chan int, 1), make(chan struct{})
	go func() { most <- mostOpen(over) }()
	for i := range 20 {
		p.write(fmt.Sprint("agent", 9*i))
	}
	p.untilCopied()
	close(over)
	if n := <-most; n > before+together*8+300 {
		t.Errorf("%d descriptors were open for %d databases", n-before, agents)
	}
	p.end()

	got, total := rows(t, store, time.Time{}), 0
	for _, n := range got {
		total += n
	}
	if len(got) != agents || total != agents+20 {
		t.Errorf("%d rows of %d agents", total, len(got))
	}
}

// BenchmarkManyAgents measures copying a home of a thousand agents: the first copy, a later write
// of one agent, and a start without changes. It also reports memory and open descriptors after the
// first copy.
func BenchmarkManyAgents(b *testing.B) {
	const agents = 1000
	for range b.N {
		home, store := newHome(b), objects.Folder{Path: b.TempDir()}
		p := start(b, home, newDisk(b)) // warm-up; the result is discarded
		for i := range agents {
			p.write(fmt.Sprint("agent", i))
		}
		p.end()
		if err := os.RemoveAll(filepath.Join(home, "replica")); err != nil {
			b.Fatal(err)
		}

		before := heap()
		begun := time.Now()
		p = start(b, home, store)
		most, over := make(chan int, 1), make(chan struct{})
		go func() { most <- mostOpen(over) }()
		p.untilCopied()
		b.ReportMetric(time.Since(begun).Seconds(), "s-first")
		close(over)
		b.ReportMetric(float64(<-most), "descriptors")
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")

		begun = time.Now()
		p.write("agent7")
		p.untilCopied()
		b.ReportMetric(time.Since(begun).Seconds(), "s-one")
		p.end()

		begun = time.Now()
		p = start(b, home, store)
		p.untilCopied()
		b.ReportMetric(time.Since(begun).Seconds(), "s-start")
		p.end()
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// mostOpen returns the maximum number of descriptors open at once until over is closed, or 0 if it
// is unknown.
func mostOpen(over <-chan struct{}) (most int) {
	for {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return 0
		}
		most = max(most, len(open))
		select {
		case <-over:
			return most
		case <-time.After(20 * time.Millisecond):
		}
	}
}
