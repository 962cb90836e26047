// Package node manages the processes that share a ledger on PostgreSQL: their membership and
// leases, the agents that each of them has, and the River queue that brings runs to them.
package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Node is a current or former process of a shared ledger. Its times are by the clock of the
// database.
type Node struct {
	ID   int64  // unique for each start
	Name string // unique among live nodes
	// Home is the name of the node that owns the files, or empty for this node's own name. A
	// command that runs beside a node uses the name of that node.
	Home      string
	Host      string
	PID       int
	Version   string
	Config    string // hash of its configuration
	Address   string // address of its web pages; empty without pages
	Triggers  bool   // whether it checks triggers and may lead
	Lanes     int    // maximum number of concurrent runs; 0 if it receives none
	StartedAt time.Time
	GoneAt    time.Time // zero while it may write
	Why       string    // reason that it is gone
}

// Alive reports whether the node may write.
func (n Node) Alive() bool { return n.GoneAt.IsZero() }

func (n Node) String() string {
	return fmt.Sprintf("%s (process %d on %s, since %s)", n.Name, n.PID, n.Host, n.StartedAt.UTC().Format(time.RFC3339))
}

const nodeColumns = `id, name, home, host, pid, version, config, address, triggers, lanes, started_at, gone_at, why`

func nodeFields(n *Node) []any {
	return []any{&n.ID, &n.Name, &n.Home, &n.Host, &n.PID, &n.Version, &n.Config, &n.Address, &n.Triggers, &n.Lanes, store.Time(&n.StartedAt), store.Time(&n.GoneAt), &n.Why}
}

// Nodes holds the processes that share a ledger on PostgreSQL, their agents, and the River queue.
// There are no nodes for a ledger in a file.
type Nodes struct {
	DB     *store.DB
	river  *river.Client[pgx.Tx]
	member atomic.Pointer[Membership] // nil if this process does not share the ledger
}

// New returns the nodes of a ledger.
func New(db *store.DB) (*Nodes, error) {
	n := &Nodes{DB: db}
	if db.Postgres == nil {
		return n, nil
	}

	var err error
	n.river, err = newRiver(db.Schema, db.Logger)
	return n, err
}

// List returns the nodes that are alive, and the last node of each other name. It is empty for a
// file.
func (l *Nodes) List(ctx context.Context) ([]Node, error) {
	return store.List(store.Reads(ctx, l.DB), nodeFields, `select `+nodeColumns+` from nodes n where gone_at = 0 or id = (select max(id) from nodes m where m.name = n.name) order by name, id`)
}

// Alive returns the nodes that are alive, oldest first.
func (l *Nodes) Alive(ctx context.Context) ([]Node, error) {
	return store.List(store.Reads(ctx, l.DB), nodeFields, `select `+nodeColumns+` from nodes where gone_at = 0 order by id`)
}

// OfAttempts returns the node names of a run's attempts, by number. It is empty for a file.
func (l *Nodes) OfAttempts(ctx context.Context, run int64) (map[int]string, error) {
	return store.Pairs[int, string](store.Reads(ctx, l.DB), `select a.number, n.name from attempts a join nodes n on n.id = a.node where a.run = $1`, run)
}

// Orphans returns the running runs without a process that executes them. In a file, these are all
// running runs, so the caller must not have started any. In a shared ledger, these are the runs of
// nodes that are gone. Runs with a River job that has ended or was deleted are orphans, too.
func (l *Nodes) Orphans(ctx context.Context) ([]record.Run, error) {
	if l.DB.Postgres == nil {
		return store.List(store.Reads(ctx, l.DB), record.RunFields, record.RunningRuns)
	}
	if l.member.Load() == nil {
		return nil, errNotJoined
	}
	return store.List(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where state = 'running' and state <> 'finished'
		and not exists (select 1 from attempts a join nodes n on n.id = a.node where a.run = runs.id and a.number = runs.attempt and n.gone_at = 0
			and (a.job = 0 or exists (select 1 from river_job j where j.id = a.job and j.finalized_at is null))) order by id`)
}

// lane counts the running runs of an agent or a job.
type lane struct{ query, name string }

const (
	agentLanesTaken = `select count(*) from runs where state = 'running' and state <> 'finished' and agent = $1`
	jobLanesTaken   = `select count(*) from runs where state = 'running' and state <> 'finished' and job = $1`
)

// CheckStart checks the conditions of a start on PostgreSQL: the time, the lanes of all nodes, and
// the home of the agent. The lock of Start serializes these checks.
func (l *Nodes) CheckStart(tx *store.Tx, r record.Run, agentLanes, jobLanes int, now time.Time) error {
	// Another process may have started the run since it was read, so that it waits for a retry.
	if r.NotBefore.After(now) {
		return fmt.Errorf("run %d is not due yet: %w", r.ID, record.ErrNotClaimable)
	}
	for of, most := range map[lane]int{{agentLanesTaken, r.Agent}: agentLanes, {jobLanesTaken, r.Job}: jobLanes} {
		if most <= 0 || of.name == "" {
			continue
		}
		var taken int
		if err := tx.QueryRow(of.query, of.name).Scan(&taken); err != nil {
			return err
		}
		if taken >= most {
			return fmt.Errorf("run %d finds no lane of %s, all %d are taken: %w", r.ID, of.name, most, record.ErrNoLane)
		}
	}
	return l.takeHome(tx, r, now)
}

// NameTakenError reports that a live node has the same name.
type NameTakenError struct{ Other Node }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("a node named %s is at work already (process %d on %s); give this one another name (node, in its configuration or --node), or stop that one", e.Other.Name, e.Other.PID, e.Other.Host)
}

var errNotJoined = errors.New("this process has not joined the nodes of the ledger, and cannot know whose attempts are over")

// ErrPooled reports a connection through a pooler that gives each transaction another session.
var ErrPooled = errors.New("the database is reached through a pooler that gives each transaction another connection (PgBouncer in transaction mode): locks and notifications get lost there; connect to PostgreSQL itself, or pool by session")
