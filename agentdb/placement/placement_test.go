package placement_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/placement"
	"rouse/agentdb/pool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/node"
)

// node is one of several nodes that share a ledger, with its own home.
type nodeName struct {
	t      testing.TB
	c      *cluster
	name   string
	dir    string
	db     *sql.DB
	ledger *ledger.Ledger
	member *node.Membership
	pool   *pool.Pool
	keeper *placement.Manager
}

// cluster is a new ledger in PostgreSQL.
type cluster struct {
	t   testing.TB
	url string
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	if os.Getenv("ROUSE_TEST_POSTGRES") == "" {
		t.Skip("ROUSE_TEST_POSTGRES is not set; .ci/run sets it")
	}
	url, _ := ledgertest.Postgres(t)
	return &cluster{t, url}
}

// start starts a node with the home dir.
func (c *cluster) start(name, dir string) *nodeName {
	c.t.Helper()
	n := &nodeName{t: c.t, c: c, name: name, dir: dir, db: ledgertest.OpenPostgres(c.t, c.url)}
	n.db.SetMaxOpenConns(12)
	var err error
	if n.ledger, err = ledger.Open(c.t.Context(), ledger.Options{DB: n.db}); err != nil {
		c.t.Fatal(err)
	}
	if n.member, err = n.ledger.Nodes.Join(c.t.Context(), node.Node{Name: name, Host: "here", PID: os.Getpid(), Triggers: true, Lanes: 1}); err != nil {
		c.t.Fatal(err)
	}
	n.open()
	c.t.Cleanup(n.stop)
	return n
}

// open starts with the existing files of the home.
func (n *nodeName) open() {
	n.t.Helper()
	agents := filepath.Join(n.dir, "agents")
	var err error
	if n.pool, err = pool.New(pool.Options{Dir: agents, Ledger: n.ledger}); err != nil {
		n.t.Fatal(err)
	}
	n.keeper = placement.New(n.t.Context(), n.pool, placement.Options{Ledger: n.ledger, Node: n.name, Agents: agents, Storage: filepath.Join(n.dir, "storage"), State: filepath.Join(n.dir, "replica"), Logger: slog.New(slog.NewTextHandler(n.t.Output(), nil))})
}

// stop stops a node properly. It has no effect on a stopped node.
func (n *nodeName) stop() {
	if n.member == nil {
		return
	}
	if err := n.pool.Close(); err != nil {
		n.t.Error(err)
	}
	n.keeper.Close()
	if err := n.member.Leave(context.WithoutCancel(n.t.Context())); err != nil {
		n.t.Error(err)
	}
	n.member = nil
	if err := errors.Join(n.ledger.Close(), n.db.Close()); err != nil {
		n.t.Error(err)
	}
}

// run starts a run of an agent on a node. It returns the error of the start.
func (n *nodeName) run(agent string) (ledger.Run, error) {
	n.t.Helper()
	a, err := n.ledger.Enqueue(n.t.Context(), ledger.Request{Agent: agent, Job: "j", Trigger: domain.TriggerManual})
	if err != nil {
		n.t.Fatal(err)
	}
	return n.startRun(a[0].Run)
}

func (n *nodeName) startRun(id int64) (ledger.Run, error) {
	n.t.Helper()
	started, err := n.ledger.Start(n.t.Context(), ledger.Start{Run: id})
	if err != nil {
		n.t.Fatal(err)
	}
	if started[0].Err != nil {
		return ledger.Run{ID: id}, started[0].Err
	}
	if err := n.keeper.Acquire(n.t.Context(), started[0].Run.Agent); err != nil {
		n.t.Fatal(err)
	}
	return started[0].Run, nil
}

func (n *nodeName) finish(r ledger.Run) {
	n.t.Helper()
	a := ledger.Attempt{Run: r.ID, Number: r.Attempt}
	if err := n.ledger.Finish(n.t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess, Exit: domain.ExitFinalResponse}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *nodeName) write(agent string, by changelog.By, text string) error {
	db, release, err := n.pool.Get(n.t.Context(), agent)
	if err != nil {
		return err
	}
	defer release()
	_, err = db.Execute(n.t.Context(), by, agentdb.ExecuteSpec{SQL: text})
	return err
}

func (n *nodeName) mustWrite(agent, text string) {
	n.t.Helper()
	if err := n.write(agent, changelog.By{}, text); err != nil {
		n.t.Fatal(err)
	}
}

// read returns one column of an agent's database as text.
func (n *nodeName) read(agent, query string) string {
	n.t.Helper()
	db, release, err := n.pool.Get(n.t.Context(), agent)
	if err != nil {
		n.t.Fatal(err)
	}
	defer release()
	rows, err := db.Query(n.t.Context(), agentdb.QuerySpec{SQL: query})
	if err != nil {
		n.t.Fatal(err)
	}
	var out []string
	for _, r := range rows.Rows {
		out = append(out, fmt.Sprint(r[rows.Columns[0]]))
	}
	return strings.Join(out, " ")
}

const (
	makeNotes = `create table notes (text text)`
	addNote   = `insert into notes (text) values ('%s')`
	notes     = `select text from notes order by text`
)

// TestComesAlong checks that another node runs the agent next, with the rows of the first node,
// and vice versa.
func TestComesAlong(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())

	r, err := north.run("clerk")
	if err != nil {
		t.Fatal(err)
	}
	north.mustWrite("clerk", makeNotes)
	north.mustWrite("clerk", fmt.Sprintf(addNote, "a"))
	if _, err := south.run("clerk"); !errors.Is(err, ledger.ErrNotClaimable) {
		t.Fatalf("two nodes do runs of one agent at once: %v", err)
	}
	north.finish(r)

	for i, n := range []*nodeName{south, north, south, south, north} {
		r, err := n.run("clerk")
		if err != nil {
			t.Fatal(err)
		}
		want := "a b0 b1 b2 b3 b4"[:1+3*i]
		if got := n.read("clerk", notes); got != want {
			t.Fatalf("run %d finds %q, want %q", i, got, want)
		}
		n.mustWrite("clerk", fmt.Sprintf(addNote, fmt.Sprintf("b%d", i)))
		n.finish(r)
	}
	home, err := north.ledger.Nodes.AgentHome(t.Context(), "clerk", "north")
	if err != nil || home.Node != "north" || home.Lease != 5 || home.State != node.HomeKept {
		t.Errorf("the agent is at %+v (%v)", home, err)
	}
}

// TestNothingAcknowledgedIsLost checks that acknowledged writes are at the next node, even if the
// previous node has lost its disk.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north := c.start("north", t.TempDir())
	r, err := north.run("clerk")
	if err != nil {
		t.Fatal(err)
	}
	north.mustWrite("clerk", makeNotes)
	by := changelog.By{Run: r.ID, Key: "c1"}
	if err := north.write("clerk", by, fmt.Sprintf(addNote, "once")); err != nil {
		t.Fatal(err)
	}
	north.lose()
	if err := os.RemoveAll(north.dir); err != nil {
		t.Fatal(err)
	}

	south := c.start("south", t.TempDir())
	orphans, err := south.ledger.Nodes.Orphans(t.Context())
	if err != nil || len(orphans) != 1 {
		t.Fatalf("left behind: %+v (%v)", orphans, err)
	}
	if err := south.ledger.Interrupt(t.Context(), ledger.Attempt{Run: r.ID, Number: r.Attempt}, "its node is gone", nil); err != nil {
		t.Fatal(err)
	}
	again, err := south.startRun(r.ID)
	if err != nil || again.Attempt != 2 {
		t.Fatalf("the run is not taken up: %+v (%v)", again, err)
	}
	// The attempt repeats the call, which is in the journal.
	if err := south.write("clerk", by, fmt.Sprintf(addNote, "once")); err != nil {
		t.Fatal(err)
	}
	if got := south.read("clerk", notes); got != "once" {
		t.Errorf("the next node finds %q", got)
	}
}

// lose makes a node look killed: none of its files is closed.
func (n *nodeName) lose() {
	n.t.Helper()
	if _, err := n.db.ExecContext(n.t.Context(), `update nodes set gone_at = 1, why = 'a test' where id = $1`, n.member.Node().ID); err != nil {
		n.t.Fatal(err)
	}
	<-n.member.Lost()
	n.db.Close()
	n.member = nil
	n.t.Cleanup(func() {
		_ = n.pool.Close() // the error does not matter
		n.keeper.Close()
	})
}

// elsewhere reports whether the error states the agent's node.
func elsewhere(err error, nodeName string) bool {
	e, ok := errors.AsType[*node.AgentElsewhereError](err)
	return ok && e.Node == nodeName
}

// TestStaleNode checks writes of a node after another node got the agent. They are not
// acknowledged, reach no other node, and are gone when the agent comes back.
func TestStaleNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	r, err := north.run("clerk")
	if err != nil {
		t.Fatal(err)
	}
	north.mustWrite("clerk", makeNotes)
	north.finish(r)

	// It still holds the old file, like a page that is being rendered.
	db, release, err := north.pool.Get(t.Context(), "clerk")
	if err != nil {
		t.Fatal(err)
	}
	if r, err = south.run("clerk"); err != nil {
		t.Fatal(err)
	}
	south.mustWrite("clerk", fmt.Sprintf(addNote, "south"))
	if _, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: fmt.Sprintf(addNote, "stale")}); !elsewhere(err, "south") {
		t.Errorf("a node writes that has the agent no more: %v", err)
	}
	release()
	south.finish(r)

	if got := north.read("clerk", notes); got != "south" {
		t.Errorf("the node that has the agent no more reads %q", got)
	}
	if r, err = north.run("clerk"); err != nil {
		t.Fatal(err)
	}
	if got := north.read("clerk", notes); got != "south" {
		t.Errorf("when the agent is back, there is %q", got)
	}
	north.finish(r)
}

// TestReadElsewhere checks that other nodes read the last shipped state and reject writes.
func TestReadElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	r, err := north.run("clerk")
	if err != nil {
		t.Fatal(err)
	}
	if south.pool.Has("clerk") {
		t.Error("an agent that has written nothing has a database")
	}
	north.mustWrite("clerk", makeNotes)
	if !south.pool.Has("clerk") {
		t.Error("the other node does not know of the database")
	}
	for _, note := range []string{"a", "b", "c"} {
		north.mustWrite("clerk", fmt.Sprintf(addNote, note))
		if got := south.read("clerk", notes); !strings.HasSuffix(got, note) {
			t.Errorf("the other node reads %q after %q was written", got, note)
		}
	}

	err = south.write("clerk", changelog.By{}, fmt.Sprintf(addNote, "here"))
	if refused, ok := errors.AsType[*agentdb.Error](err); !ok || refused.Kind != "rejected" || !strings.Contains(refused.Message, "at the node north") {
		t.Errorf("a write at another node: %v", err)
	}
	if _, err := south.pool.Recovery.Reset(t.Context(), "clerk", nil); err == nil {
		t.Error("another node's database was replaced")
	}
	north.finish(r)
	if got := north.read("clerk", notes); got != "a b c" {
		t.Errorf("there is %q", got)
	}

	// The owner's actions on the whole database are shipped too.
	if _, err := north.pool.Recovery.Reset(t.Context(), "clerk", nil); err != nil {
		t.Fatal(err)
	}
	if got := south.read("clerk", `select name from sqlite_schema where name = 'notes'`); got != "" {
		t.Errorf("after a reset, the other node has %q", got)
	}
}

// TestFilesStay checks that an agent with files stays at its node, and moves again after they are
// gone.
func TestFilesStay(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"agents/clerk/work", "agents/clerk/home", "storage/clerk"} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
			r, err := north.run("clerk")
			if err != nil {
				t.Fatal(err)
			}
			made := filepath.Join(north.dir, folder, "file")
			if err := os.MkdirAll(filepath.Dir(made), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(made, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := north.keeper.Pin(t.Context(), "clerk"); err != nil {
				t.Fatal(err)
			}
			north.mustWrite("clerk", makeNotes) // shipping does not change that
			north.finish(r)
			if _, err := south.run("clerk"); !errors.Is(err, ledger.ErrNotClaimable) || !strings.Contains(err.Error(), "north") {
				t.Fatalf("the agent leaves its files: %v", err)
			}

			if err := os.Remove(made); err != nil {
				t.Fatal(err)
			}
			if r, err = north.run("clerk"); err != nil {
				t.Fatal(err)
			}
			north.finish(r)
			if _, err := south.run("clerk"); err != nil {
				t.Errorf("the agent stays without files: %v", err)
			}
		})
	}
}

// TestFromAHome checks that the databases of a joining home are shipped at its start. Until then
// no other node gets them.
func TestFromAHome(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dir := t.TempDir()
	pool, err := pool.New(pool.Options{Dir: filepath.Join(dir, "agents")})
	if err != nil {
		t.Fatal(err)
	}
	db, release, err := pool.Get(t.Context(), "clerk")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{makeNotes, fmt.Sprintf(addNote, "before")} {
		if _, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: text}); err != nil {
			t.Fatal(err)
		}
	}
	release()
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}

	south := c.start("south", t.TempDir())
	if err := south.ledger.Nodes.TakeAgents(t.Context(), "north", true, "clerk"); err != nil {
		t.Fatal(err)
	}
	if _, err := south.run("clerk"); !errors.Is(err, ledger.ErrNotClaimable) {
		t.Fatalf("an agent is taken whose database is at another node alone: %v", err)
	}
	if _, _, err := south.pool.Get(t.Context(), "clerk"); !elsewhere(err, "north") {
		t.Errorf("a database that was not shipped is read: %v", err)
	}
	north := c.start("north", dir)
	north.keeper.AcquireAll(t.Context())
	if _, err := south.run("clerk"); err != nil {
		t.Fatal(err)
	}
	if got := south.read("clerk", notes); got != "before" {
		t.Errorf("the next node finds %q", got)
	}
}

// TestGivenByItsOwner checks that an owner can move an agent with files from a lost node to
// another.
func TestGivenByItsOwner(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north := c.start("north", t.TempDir())
	r, err := north.run("clerk")
	if err != nil {
		t.Fatal(err)
	}
	north.mustWrite("clerk", makeNotes)
	north.mustWrite("clerk", fmt.Sprintf(addNote, "a"))
	north.finish(r)
	if err := os.MkdirAll(filepath.Join(north.dir, "agents/clerk/work/sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := north.keeper.Pin(t.Context(), "clerk"); err != nil {
		t.Fatal(err)
	}

	south := c.start("south", t.TempDir())
	if err := south.ledger.Nodes.TakeAgents(t.Context(), "south", false, "clerk"); err == nil || !strings.Contains(err.Error(), "north") {
		t.Errorf("the agent of a node that is at work is taken: %v", err)
	}
	north.stop()
	if err := south.ledger.Nodes.TakeAgents(t.Context(), "south", false, "clerk"); err != nil {
		t.Fatal(err)
	}
	if _, err := south.run("clerk"); err != nil {
		t.Fatal(err)
	}
	if got := south.read("clerk", notes); got != "a" {
		t.Errorf("the next node finds %q", got)
	}
}

// TestLargeAndMany checks values of several parts, and more writes than are kept separately.
func TestLargeAndMany(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	r, err := north.run("clerk")
	if err != nil {
		t.Fatal(err)
	}
	north.mustWrite("clerk", `create table blobs (n integer, data blob)`)
	for i := range 6 {
		north.mustWrite("clerk", fmt.Sprintf(`insert into blobs (n, data) values (%d, randomblob(3000000))`, i))
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 40 {
				if err := north.write("clerk", changelog.By{}, fmt.Sprintf(`insert into blobs (n) values (%d)`, 100*i+n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	north.finish(r)
	north.stop() // including background work

	home, err := south.ledger.Nodes.AgentHome(t.Context(), "clerk", "south")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := south.ledger.Nodes.AgentCopies(home).List(t.Context(), "", "")
	if err != nil || len(objects) > 200 {
		t.Errorf("%d objects are kept of 327 writes (%v)", len(objects), err)
	}
	if r, err = south.run("clerk"); err != nil {
		t.Fatal(err)
	}
	if got := south.read("clerk", `select count(*) || '/' || sum(length(data)) from blobs`); got != "326/18000000" {
		t.Errorf("the next node finds %s", got)
	}
	south.finish(r)
}

// TestMoves lets three nodes run agents, be killed and come back with various disk contents. Each
// acknowledged write must exist exactly once, and there must be no other rows.
func TestMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	names, dirs := []string{"one", "two", "three"}, []string{t.TempDir(), t.TempDir(), t.TempDir()}
	nodes := make([]*nodeName, 3)
	for i, name := range names {
		nodes[i] = c.start(name, dirs[i])
	}

	written := map[string]int{} // acknowledged writes by agent
	kills := 0
	for step := range 120 {
		i, agent := rand.IntN(3), fmt.Sprintf("agent%d", rand.IntN(2))
		n := nodes[i]
		r, err := n.run(agent)
		for errors.Is(err, node.ErrAgentAway) { // the previous node is still merging; retry like the dispatcher
			r, err = n.startRun(r.ID)
		}
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if written[agent] == 0 {
			n.mustWrite(agent, `create table w (n integer primary key)`)
		}
		for range rand.IntN(4) {
			written[agent]++
			n.mustWrite(agent, fmt.Sprintf(`insert into w (n) values (%d)`, written[agent]))
		}
		if written[agent] == 0 {
			written[agent]++
			n.mustWrite(agent, `insert into w (n) values (1)`)
		}
		if got, want := n.read(agent, `select count(*) || '/' || max(n) from w`), fmt.Sprintf("%[1]d/%[1]d", written[agent]); got != want {
			t.Fatalf("step %d: %s at %s holds %s, want %s", step, agent, n.name, got, want)
		}
		n.finish(r)

		if rand.IntN(6) == 0 {
			kills++
			// The returning node's file may have writes that were not shipped.
			n.lose()
			nodes[i] = c.start(n.name, n.dir)
		}
	}
	t.Logf("%d writes, %d kills", written["agent0"]+written["agent1"], kills)
}

// TestOldHome checks that a home restored to an older state does not revert newer shipped writes.
func TestOldHome(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north := c.start("north", t.TempDir())
	r, err := north.run("clerk")
	if err != nil {
		t.Fatal(err)
	}
	north.mustWrite("clerk", makeNotes)
	north.mustWrite("clerk", fmt.Sprintf(addNote, "a"))
	north.finish(r)
	north.stop()
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(north.dir)); err != nil {
		t.Fatal(err)
	}

	north = c.start("north", north.dir)
	north.mustWrite("clerk", fmt.Sprintf(addNote, "b"))
	north.stop()
	north = c.start("north", old)
	if got := north.read("clerk", notes); got != "a b" {
		t.Errorf("there is %q", got)
	}
	north.mustWrite("clerk", fmt.Sprintf(addNote, "c"))
	south := c.start("south", t.TempDir())
	if got := south.read("clerk", notes); got != "a b c" {
		t.Errorf("the other node finds %q", got)
	}
}

// TestOtherDatabaseIsKept checks that a database in a home is kept when its agent arrives there.
func TestOtherDatabaseIsKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dir := t.TempDir()
	pool, err := pool.New(pool.Options{Dir: filepath.Join(dir, "agents")})
	if err != nil {
		t.Fatal(err)
	}
	db, release, err := pool.Get(t.Context(), "clerk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Execute(t.Context(), changelog.By{}, agentdb.ExecuteSpec{SQL: makeNotes}); err != nil {
		t.Fatal(err)
	}
	release()
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}

	north, south := c.start("north", t.TempDir()), c.start("south", dir)
	r, err := north.run("clerk")
	if err != nil {
		t.Fatal(err)
	}
	north.mustWrite("clerk", `create table mine (n integer)`)
	north.finish(r)
	for range 3 { // each time with another state
		if got := south.read("clerk", `select count(*) from mine`); got != "0" {
			t.Errorf("there is %q", got)
		}
		north.mustWrite("clerk", `create table if not exists more (n integer); insert into more (n) values (1)`)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "agents", "clerk", "replaced", "*", "db.sqlite"))
	if err != nil || len(kept) != 1 {
		t.Errorf("%d databases are kept of the one that was there (%v)", len(kept), err)
	}
}

// TestDeadBeforeItBegan checks that an agent can move if its first node died before doing any
// work.
func TestDeadBeforeItBegan(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	a, err := north.ledger.Enqueue(t.Context(), ledger.Request{Agent: "clerk", Job: "j", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	started, err := north.ledger.Start(t.Context(), ledger.Start{Run: a[0].Run})
	if err != nil || started[0].Err != nil {
		t.Fatal(err, started[0].Err)
	}
	north.lose()

	if err := south.ledger.Interrupt(t.Context(), started[0].Attempt, "its node is gone", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := south.startRun(a[0].Run); err != nil {
		t.Fatal(err)
	}
	south.mustWrite("clerk", makeNotes)
	if home, err := south.ledger.Nodes.AgentHome(t.Context(), "clerk", "south"); err != nil || home.Node != "south" || home.State != node.HomeKept {
		t.Errorf("the agent is at %+v (%v)", home, err)
	}
}

// TestRecordings checks that every node can read recordings, that only the agent's node writes
// them, and that they are deleted with their runs.
func TestRecordings(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	north, south := c.start("north", t.TempDir()), c.start("south", t.TempDir())
	if _, err := north.run("clerk"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "1.1.jsonl")
	if err := os.WriteFile(file, []byte(strings.Repeat("a line\n", 300_000)), 0o600); err != nil { // of several parts
		t.Fatal(err)
	}
	if err := south.keeper.UploadRecording(t.Context(), "clerk", file); !elsewhere(err, "north") {
		t.Errorf("a node that has not got the agent keeps a recording: %v", err)
	}
	if err := north.keeper.UploadRecording(t.Context(), "clerk", file); err != nil {
		t.Fatal(err)
	}

	read := func() string {
		r, err := south.keeper.Recording(t.Context(), "clerk", "1.1.jsonl")
		if errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		all, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(all)
	}
	if got := read(); got != strings.Repeat("a line\n", 300_000) {
		t.Errorf("another node reads %d bytes", len(got))
	}
	for _, n := range []*nodeName{south, north} {
		if err := n.keeper.SweepRecordings(t.Context(), func(name string) (bool, error) { return name == "1.1.jsonl", nil }); err != nil {
			t.Fatal(err)
		}
		if left := read() != ""; left != (n == south) {
			t.Errorf("after %s swept, it is there: %t", n.name, left)
		}
	}
}
