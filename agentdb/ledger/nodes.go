package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
)

// Node is a process that works on a ledger together with others, or has done so. Its times are by the clock of the
// database.
type Node struct {
	ID        int64  // of one start of it
	Name      string // unique among those that are at work
	Home      string // the node whose files it has: "" for its own name; a command that works beside a node names that
	Host      string
	PID       int
	Version   string
	Config    string // a hash of its configuration
	Address   string // of its pages; "" where there are none
	Triggers  bool   // it looks for reasons to start runs, and may lead
	Lanes     int    // how many runs it does at once; 0: it is given none
	StartedAt time.Time
	GoneAt    time.Time // zero: it may write
	Why       string    // it is gone
}

// Alive reports whether a node may write.
func (n Node) Alive() bool { return n.GoneAt.IsZero() }

func (n Node) String() string {
	return fmt.Sprintf("%s (process %d on %s, since %s)", n.Name, n.PID, n.Host, n.StartedAt.UTC().Format(time.RFC3339))
}

const nodeColumns = `id, name, home, host, pid, version, config, address, triggers, lanes, started_at, gone_at, why`

func nodeFields(n *Node) []any {
	return []any{&n.ID, &n.Name, &n.Home, &n.Host, &n.PID, &n.Version, &n.Config, &n.Address, &n.Triggers, &n.Lanes, at(&n.StartedAt), at(&n.GoneAt), &n.Why}
}

// Nodes lists the processes that work on the ledger together, and those that were the last of their name; none where
// there is one process.
func (l *Ledger) Nodes(ctx context.Context) ([]Node, error) {
	return list(l.reads(ctx), nodeFields, `select `+nodeColumns+` from nodes n where gone_at = 0 or id = (select max(id) from nodes m where m.name = n.name) order by name, id`)
}

// AliveNodes lists the processes that work on the ledger together, the one that has done so for longest first.
func (l *Ledger) AliveNodes(ctx context.Context) ([]Node, error) {
	return list(l.reads(ctx), nodeFields, `select `+nodeColumns+` from nodes where gone_at = 0 order by id`)
}

// AttemptNodes are the names of the nodes that made the attempts of a run, by number; none where there is one process.
func (l *Ledger) AttemptNodes(ctx context.Context, run int64) (map[int]string, error) {
	return pairs[int, string](l.reads(ctx), `select a.number, n.name from attempts a join nodes n on n.id = a.node where a.run = $1`, run)
}

// Orphans lists the runs with an attempt in progress that nobody does. Of a ledger that one process has to itself, these are all that
// are in progress; it must not have begun any. One that can be shared is asked by its nodes: there they are those whose node is gone, or
// whose job of River is over or was deleted.
func (l *Ledger) Orphans(ctx context.Context) ([]Run, error) {
	if l.db == nil {
		return l.Running(ctx)
	}
	if l.member.Load() == nil {
		return nil, errNotJoined
	}
	return list(l.reads(ctx), runFields, `select `+runColumns+` from runs where state = 'running' and state <> 'finished'
		and not exists (select 1 from attempts a join nodes n on n.id = a.node where a.run = runs.id and a.number = runs.attempt and n.gone_at = 0
			and (a.job = 0 or exists (select 1 from river_job j where j.id = a.job and j.finalized_at is null))) order by id`)
}

// Start asks for an attempt of a run, by this process.
type Start struct {
	Run int64
	Job int64 // of River, that brought the run here; 0: none did
	// The lanes that the run's agent and its job have, over all nodes; 0: as many as are wanted. Where one process has
	// the ledger to itself, that counts them.
	AgentLanes, JobLanes int
	// Behind keeps the run of an instant queued while another run of its job waits for a person.
	Behind bool
}

// lane is what a run needs one of: those of an agent, or of a job.
type lane struct{ query, name string }

const (
	agentLanesTaken = `select count(*) from runs where state = 'running' and state <> 'finished' and agent = $1`
	jobLanesTaken   = `select count(*) from runs where state = 'running' and state <> 'finished' and job = $1`
)

// startShared is what a start on PostgreSQL has to look at beside the run: its time, its lanes over all nodes, and whether its agent can be
// here. Who asks waits until whoever asked before has committed.
func (l *Ledger) startShared(tx *sqlite.Tx, r Run, s Start, now time.Time) error {
	// Since it was read another process may have begun it, and have it wait for its next attempt.
	if r.NotBefore.After(now) {
		return fmt.Errorf("run %d is not due yet: %w", r.ID, ErrNotClaimable)
	}
	for of, most := range map[lane]int{{agentLanesTaken, r.Agent}: s.AgentLanes, {jobLanesTaken, r.Job}: s.JobLanes} {
		if most <= 0 || of.name == "" {
			continue
		}
		var taken int
		if err := tx.QueryRow(of.query, of.name).Scan(&taken); err != nil {
			return err
		}
		if taken >= most {
			return fmt.Errorf("run %d finds no lane of %s, all %d are taken: %w", r.ID, of.name, most, ErrNoLane)
		}
	}
	return l.takeHome(tx, r, now)
}

// NameTakenError is a node that cannot start, because another one of its name is at work.
type NameTakenError struct{ Other Node }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("a node named %s is at work already (process %d on %s); give this one another name (node, in its configuration or --node), or stop that one", e.Other.Name, e.Other.PID, e.Other.Host)
}

// ErrLeaseLost is what every write fails with once other nodes have taken this one for dead: they do its work.
var ErrLeaseLost = errors.New("this node has lost its lease: the others have not heard of it for too long, and do its work now")

var errNotJoined = errors.New("this process has not joined the nodes of the ledger, and cannot know whose attempts are over")

// ErrPooled is a connection through a pooler that gives each transaction another session.
var ErrPooled = errors.New("the database is reached through a pooler that gives each transaction another connection (PgBouncer in transaction mode): locks and notifications get lost there; connect to PostgreSQL itself, or pool by session")
