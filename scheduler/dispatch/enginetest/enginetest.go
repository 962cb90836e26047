// Package enginetest is a conformance suite for dispatchers, on every kind of ledger and with one
// or several nodes.
package enginetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/node"
	"rouse/scheduler/dispatch"
	"rouse/scheduler/dispatch/river"
)

// Engine is a kind of ledger and the number of dispatchers that use it.
type Engine struct {
	nodes  int
	shared bool // whether the dispatchers are nodes of the ledger
	// fresh creates a ledger for one test. Each call of open opens it again. db is its database, or
	// nil if only one process may open the ledger.
	fresh func(t *testing.T) (open func() *ledger.Ledger, db *sql.DB, url string)
}

// SQLite returns an engine with one dispatcher on a file.
func SQLite() Engine {
	return Engine{nodes: 1, fresh: func(t *testing.T) (func() *ledger.Ledger, *sql.DB, string) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		var last *ledger.Ledger
		closeLast := func() {
			if last == nil {
				return
			}
			if err := last.Close(); err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(closeLast)

		return func() *ledger.Ledger {
			closeLast()
			var err error
			if last, err = ledger.Open(context.WithoutCancel(t.Context()), ledger.Options{Path: path}); err != nil {
				t.Fatal(err)
			}
			return last
		}, nil, ""
	}}
}

// Postgres returns an engine with the given number of nodes on a ledger in PostgreSQL. Each node
// has its own connections.
func Postgres(nodes int) Engine {
	return Engine{nodes: nodes, shared: true, fresh: func(t *testing.T) (func() *ledger.Ledger, *sql.DB, string) {
		url, _ := ledgertest.Postgres(t)
		return func() *ledger.Ledger { return ledgertest.OpenOn(t, url) }, ledgertest.OpenPostgres(t, url), url
	}}
}

// Run runs the conformance suite.
func Run(t *testing.T, e Engine) {
	for name, test := range map[string]func(*cluster){
		"Once": once, "Order": order, "AgentOrder": agentOrder, "DaemonLanes": daemonLanes, "Retries": retries, "EarlyRetry": earlyRetry, "Deadline": deadline,
		"Cancel": cancelled, "Pause": paused, "Answers": answers, "Late": late, "Restart": restart, "LeftRunning": leftRunning,
		"Lost": lost, "Names": names, "Leads": leads, "Obstacles": obstacles, "Stranded": stranded, "Placement": placement, "Leaves": leaves, "Moves": moves,
	} {
		t.Run(name, func(t *testing.T) {
			if !e.shared { // each node uses several of the server's connections
				t.Parallel()
			}
			c := &cluster{t: t, Engine: e, lanes: 8, perAgent: 8, drain: time.Minute, execute: succeed}
			c.open, c.db, c.url = e.fresh(t)
			test(c)
			c.stop()
			if c.l != nil {
				ledgertest.Audited(t, c.l)
			}
		})
	}
}

// cluster holds the dispatchers of a test.
type cluster struct {
	Engine
	t    *testing.T
	open func() *ledger.Ledger
	db   *sql.DB
	url  string
	// l is the ledger of the test. It is shared with the first node if only one process may open
	// it.
	l     *ledger.Ledger
	nodes []*clusterNode
	begun int // number of runs enqueued while nodes were running

	lanes, perAgent int
	drain           time.Duration
	policy          func(job string) dispatch.Policy
	obstacles       func(node string, run ledger.Run) []ledger.Obstacle
	execute         func(ctx context.Context, node string, run ledger.Run) ledger.Result
}

// clusterNode is a running dispatcher, like the one of a separate process.
type clusterNode struct {
	name string
	l    *ledger.Ledger
	m    *node.Membership // nil unless the ledger is shared
	d    *dispatch.Dispatcher
	end  context.CancelFunc
	over chan error
}

// prepare opens the ledger if it is not open yet.
func (c *cluster) prepare() *ledger.Ledger {
	if c.l == nil {
		c.l = c.open()
	}
	return c.l
}

// start starts the dispatchers.
func (c *cluster) start() {
	c.t.Helper()
	c.prepare()
	for i := range c.Engine.nodes {
		c.startNode(fmt.Sprintf("node%d", i+1))
	}
}

func (c *cluster) startNode(name string) *clusterNode {
	c.t.Helper()
	n := &clusterNode{name: name, l: c.prepare(), over: make(chan error, 1)}
	if c.shared {
		n.l = c.open()
		var err error
		if n.m, err = n.l.Nodes.Join(c.t.Context(), node.Node{Name: name, Host: "here", Triggers: true, Lanes: c.lanes}); err != nil {
			c.t.Fatal(err)
		}
	}

	o := dispatch.Options{Ledger: n.l, Executor: &executor{c: c, node: name}, Runs: c.lanes, RunsPerAgent: c.perAgent, Drain: c.drain, Now: n.l.Now, Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil))}
	if c.shared {
		pool, err := pgxpool.New(c.t.Context(), c.url)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(pool.Close)
		o.Engine = river.New(river.Options{Ledger: n.l, Pool: pool, Logger: o.Logger})
	}
	d, err := dispatch.New(o)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(c.t.Context()))
	n.d, n.end = d, end
	go func() { n.over <- d.Run(ctx) }()
	c.nodes = append(c.nodes, n)
	c.t.Cleanup(n.end)
	return n
}

// stop ends all nodes in order, as daemons do.
func (c *cluster) stop() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.end()
	}
	for _, n := range c.nodes {
		if err := <-n.over; err != nil && !errors.Is(err, ledger.ErrLeaseLost) {
			c.t.Error(err)
		}
		if n.m != nil {
			if err := n.m.Leave(context.WithoutCancel(c.t.Context())); err != nil {
				c.t.Error(err)
			}
		}
	}
	c.nodes = nil
}

// reopen simulates a restart of all processes.
func (c *cluster) reopen() {
	c.t.Helper()
	c.stop()
	c.l = c.open()
	c.start()
}

// other returns a node with another name, or the only node if there is no other.
func (c *cluster) other(name string) *clusterNode {
	for _, n := range c.nodes {
		if n.name != name {
			return n
		}
	}
	return c.nodes[0]
}

// executor executes runs with the functions of the test.
type executor struct {
	dispatch.ExecutorFunc
	c    *cluster
	node string
}

// Policy implements dispatch.Executor.
func (e *executor) Policy(job string) dispatch.Policy {
	if e.c.policy == nil {
		return e.ExecutorFunc.Policy(job)
	}
	return e.c.policy(job)
}

// Obstacles implements dispatch.Executor.
func (e *executor) Obstacles(_ context.Context, run ledger.Run) []ledger.Obstacle {
	if e.c.obstacles == nil {
		return nil
	}
	return e.c.obstacles(e.node, run)
}

// Freeze implements dispatch.Executor.
func (e *executor) Freeze() func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
	return func(ctx context.Context, run ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
		return e.c.execute(ctx, e.node, run), nil
	}
}

func succeed(context.Context, string, ledger.Run) ledger.Result {
	return ledger.Result{Outcome: domain.OutcomeSuccess, Exit: domain.ExitFinalResponse}
}

func success(summary string) ledger.Result {
	return ledger.Result{Outcome: domain.OutcomeSuccess, Exit: domain.ExitFinalResponse, Summary: summary}
}

// untilStopped waits until the run is stopped.
func untilStopped(ctx context.Context) ledger.Result {
	<-ctx.Done()
	return ledger.Result{Outcome: domain.OutcomeError, Error: "it ended"}
}

func unlimited(string) dispatch.Policy { return dispatch.Policy{Resume: true, Concurrency: -1} }

// enqueue requests a run. It uses the nodes in turn.
func (c *cluster) enqueue(agent, job string) int64 {
	c.t.Helper()
	return c.accept(ledger.Request{Job: job, Agent: agent, Trigger: domain.TriggerManual})
}

func (c *cluster) accept(r ledger.Request) int64 {
	c.t.Helper()
	enqueue := c.prepare().Enqueue
	if len(c.nodes) > 0 {
		c.begun++
		enqueue = c.nodes[c.begun%len(c.nodes)].l.Enqueue
	}
	a, err := enqueue(c.t.Context(), r)
	if err != nil {
		c.t.Fatal(err)
	}
	return a[0].Run
}

func (c *cluster) run(id int64) ledger.Run {
	c.t.Helper()
	r, err := c.l.Runs.Get(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// until waits until a change of the ledger makes done return true.
func (c *cluster) until(what string, done func() bool) {
	c.t.Helper()
	late := time.After(time.Minute)
	for {
		changed := c.l.Changed()
		if done() {
			return
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // a ledger that is only read receives no notifications
		case <-late:
			c.t.Fatalf("%s did not happen", what)
		}
	}
}

func (c *cluster) untilFinished(id int64) ledger.Run {
	c.t.Helper()
	c.until(fmt.Sprintf("the end of run %d", id), func() bool { return c.run(id).State == domain.StateFinished })
	return c.run(id)
}

func (c *cluster) untilIdle() {
	c.t.Helper()
	c.until("the end of all runs", func() bool {
		left, err := c.l.Runs.Unfinished(c.t.Context())
		return err == nil && len(left) == 0
	})
}

// counter counts running runs and their maximum.
type counter struct {
	mu        sync.Mutex
	now, most map[string]int
}

func newCounter() *counter { return &counter{now: map[string]int{}, most: map[string]int{}} }

func (c *counter) add(by int, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		c.now[name] += by
		c.most[name] = max(c.most[name], c.now[name])
	}
}
