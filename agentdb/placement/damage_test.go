package placement_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/pool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/node"
)

// begin runs clerk on a node: the run creates its table with notes in it.
func (n *nodeName) begin(with ...string) ledger.Run {
	n.t.Helper()
	r, err := n.run("clerk")
	if err != nil {
		n.t.Fatal(err)
	}
	n.mustWrite("clerk", makeNotes)
	for _, note := range with {
		n.mustWrite("clerk", fmt.Sprintf(addNote, note))
	}
	n.finish(r)
	return r
}

func (n *nodeName) count(query string) (count int) {
	n.t.Helper()
	if err := n.db.QueryRowContext(n.t.Context(), query).Scan(&count); err != nil {
		n.t.Fatal(err)
	}
	return count
}

// TestUndoIsShipped checks that an undo runs at the agent's node and reaches the next node.
func TestUndoIsShipped(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	r, err := north.run("clerk")
	if err != nil {
		t.Fatal(err)
	}
	north.mustWrite("clerk", makeNotes)
	if err := north.write("clerk", changelog.By{Run: r.ID, Key: "k"}, fmt.Sprintf(addNote, "a")); err != nil {
		t.Fatal(err)
	}
	north.finish(r)

	undo := func(n *nodeName) (changelog.Undone, error) {
		db, release, err := n.pool.Get(t.Context(), "clerk")
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		return db.Undo(t.Context(), changelog.By{}, changelog.UndoSpec{Run: r.ID})
	}
	if u, err := undo(south); err == nil || !strings.Contains(err.Error(), "at the node north") {
		t.Errorf("a copy was changed: %+v (%v)", u, err)
	}
	if u, err := undo(north); err != nil || !u.Done {
		t.Fatalf("%+v (%v)", u, err)
	}
	if got := south.read("clerk", notes); got != "" {
		t.Errorf("the next node still has %q", got)
	}
}

// TestEmptiedCopies checks that a database is shipped again as a whole if its shipped files are
// gone. That happens in a new PostgreSQL database with a ledger from elsewhere.
func TestEmptiedCopies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north := c.start("north", t.TempDir())
	north.begin("a", "b")
	north.stop()

	south := c.start("south", t.TempDir())
	for _, statement := range []string{`delete from agent_homes`, `delete from agent_copies`} {
		if _, err := south.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := south.ledger.Nodes.TakeAgents(t.Context(), "north", true, "clerk"); err != nil {
		t.Fatal(err)
	}
	north = c.start("north", north.dir)
	north.keeper.AcquireAll(t.Context())
	north.mustWrite("clerk", fmt.Sprintf(addNote, "c"))
	if got := south.read("clerk", notes); got != "a b c" {
		t.Errorf("the other node finds %q", got)
	}
}

// TestTakeLocal checks that a node's local file replaces the shipped state if the owner requests
// it.
func TestTakeLocal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north := c.start("north", t.TempDir())
	north.begin("a")
	north.stop()
	pool, err := pool.New(pool.Options{Dir: filepath.Join(north.dir, "agents")})
	if err != nil {
		t.Fatal(err)
	}
	db, release, err := pool.Get(t.Context(), "clerk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: fmt.Sprintf(addNote, "local")}); err != nil {
		t.Fatal(err)
	}
	release()
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}

	south := c.start("south", t.TempDir())
	if r, err := south.run("clerk"); err != nil {
		t.Fatal(err)
	} else {
		south.mustWrite("clerk", fmt.Sprintf(addNote, "south"))
		south.finish(r)
	}
	south.stop()
	west := c.start("west", t.TempDir())
	if err := west.ledger.Nodes.TakeAgents(t.Context(), "north", true, "clerk"); err != nil {
		t.Fatal(err)
	}
	north = c.start("north", north.dir)
	north.keeper.AcquireAll(t.Context())
	for _, n := range []*nodeName{north, west} {
		if got := n.read("clerk", notes); got != "a local" {
			t.Errorf("%s finds %q", n.name, got)
		}
	}
}

// TestGivenUp checks that callers that give up during shipping do not block later callers or the
// owner's replacement.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	r, err := north.run("clerk")
	if err != nil {
		t.Fatal(err)
	}
	north.mustWrite("clerk", makeNotes)
	given := 0
	for i := range 150 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(500+i*37%9000)*time.Microsecond)
		db, release, err := north.pool.Get(t.Context(), "clerk")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Execute(ctx, changelog.By{}, agentdb.ExecuteSpec{SQL: fmt.Sprintf(addNote, fmt.Sprintf("n%03d", i))}); err != nil {
			given++
		}
		release()
		cancel()
	}
	north.mustWrite("clerk", fmt.Sprintf(addNote, "last"))
	t.Logf("%d of 150 gave up", given)
	if n := north.count(`select count(*) from (select substr(name, 1, 22) from agent_copies where name like 'db/0/%' and part = 0 group by 1 having count(*) > 1) twice`); n != 0 {
		t.Errorf("%d transactions were shipped twice", n)
	}
	if here, there := north.read("clerk", `select count(*) from notes`), south.read("clerk", `select count(*) from notes`); here != there {
		t.Errorf("here are %s, and there %s", here, there)
	}
	north.finish(r)
	if _, err := north.pool.Recovery.Reset(t.Context(), "clerk", nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*nodeName{north, south} {
		if got := n.read("clerk", `select name from sqlite_schema where name = 'notes'`); got != "" {
			t.Errorf("after the reset, %s has the table %q", n.name, got)
		}
	}
}

// TestReplacedInPeace checks that no other node gets an agent while its database is being
// replaced.
func TestReplacedInPeace(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	north.begin("a")
	var refused error
	_, err := north.pool.Recovery.Reset(t.Context(), "clerk", func(context.Context) error {
		_, refused = south.run("clerk")
		return nil
	})
	if err != nil || !errors.Is(refused, ledger.ErrNotClaimable) {
		t.Fatalf("%v; the other node was told %v", err, refused)
	}
	if _, err := south.run("clerk"); err != nil {
		t.Fatal(err)
	}
	if got := south.read("clerk", `select name from sqlite_schema where name = 'notes'`); got != "" {
		t.Errorf("the next node finds the table %q", got)
	}
}

// TestFolderGone checks that losing a home folder does not turn a shipped database into an empty
// one.
func TestFolderGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north := c.start("north", t.TempDir())
	north.begin("a")
	north.stop()
	if err := os.RemoveAll(filepath.Join(north.dir, "agents", "clerk")); err != nil {
		t.Fatal(err)
	}
	north = c.start("north", north.dir)
	if got := north.read("clerk", notes); got != "a" {
		t.Errorf("there is %q", got)
	}
}

// TestOlderLedger checks that a ledger restored to an older state does not remove the newer file.
func TestOlderLedger(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north := c.start("north", t.TempDir())
	north.begin("a", "b")
	north.stop()
	admin := ledgertest.OpenPostgres(t, c.url)
	if _, err := admin.ExecContext(t.Context(), `delete from agent_copies where name = (select max(name) from agent_copies where name like 'db/0/%')`); err != nil {
		t.Fatal(err)
	}
	north = c.start("north", north.dir)
	if got := north.read("clerk", notes); got != "a" {
		t.Errorf("there is %q", got)
	}
	kept, err := filepath.Glob(filepath.Join(north.dir, "agents", "clerk", "replaced", "*", "db.sqlite"))
	if err != nil || len(kept) != 1 {
		t.Errorf("%d files are kept of what was newer (%v)", len(kept), err)
	}
}

// TestNamesInTwoCases checks that agents with names that differ only in case keep separate data.
func TestNamesInTwoCases(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	north.mustWrite("Clerk", makeNotes)
	for i := range 20 { // more than stay open
		north.mustWrite(fmt.Sprint("other", i), makeNotes)
	}
	north.mustWrite("clerk", makeNotes)
	north.mustWrite("clerk", fmt.Sprintf(addNote, "x"))
	if got := south.read("clerk", notes); got != "x" {
		t.Errorf("the other node finds %q", got)
	}
}

// TestDamagedCopy checks that a damaged read-only copy is fetched again and does not block runs
// here.
func TestDamagedCopy(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	north.begin("a")
	if got := south.read("clerk", notes); got != "a" {
		t.Fatalf("there is %q", got)
	}
	south.stop()
	f, err := os.OpenFile(filepath.Join(south.dir, "agents", "clerk", "db.sqlite"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt([]byte("xxxx"), info.Size()-5)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}

	south = c.start("south", south.dir)
	if err := south.pool.Quarantined("clerk"); err != nil {
		t.Errorf("a copy keeps runs from being done: %v", err)
	}
	if got := south.read("clerk", notes); got != "a" {
		t.Errorf("there is %q", got)
	}
	if _, err := south.run("clerk"); err != nil {
		t.Error(err)
	}
}

// TestNobodyWaitsForShipping checks that a large upload of one agent does not block other runs or
// later requests for the agent.
func TestNobodyWaitsForShipping(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	north.begin("a")
	tx, err := north.db.BeginTx(t.Context(), nil) // as in AgentCopies.Put
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `select 1 from agent_homes where agent = 'clerk' for key share`); err != nil {
		t.Fatal(err)
	}
	a, err := south.ledger.Enqueue(t.Context(), ledger.Request{Agent: "clerk", Job: "j", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := south.startRun(a[0].Run); !errors.Is(err, node.ErrAgentAway) {
		t.Errorf("the agent is given away in the middle: %v", err)
	}
	if _, err := south.run("another"); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := south.startRun(a[0].Run); err != nil {
		t.Error(err)
	}
}

// TestFewWritesAPart checks that shipped files are merged even if each process makes few writes.
func TestFewWritesAPart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dir := t.TempDir()
	for i := range 70 {
		north := c.start("north", dir)
		if i == 0 {
			north.mustWrite("clerk", makeNotes)
		}
		north.mustWrite("clerk", fmt.Sprintf(addNote, fmt.Sprint(i)))
		north.stop()
	}
	south := c.start("south", t.TempDir())
	if n := south.count(`select count(*) from agent_copies where name like 'db/1/%'`); n == 0 {
		t.Error("nothing was merged")
	}
	if got := south.read("clerk", `select count(*) from notes`); got != "70" {
		t.Errorf("there are %s", got)
	}
}
