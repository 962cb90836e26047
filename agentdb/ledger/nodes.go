package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
)

// Node is a process that works on a ledger together with others, or has done so. Its times are by the clock of the
// database.
type Node struct {
	ID             int64  // of one start of it
	Name           string // unique among those that are at work
	Home           string // the node whose files it has: "" for its own name; a command that works beside a node names that
	Host           string
	PID            int
	Version        string
	Config         string // a hash of its configuration
	Address        string // of its pages; "" where there are none
	Triggers, Work bool   // whether it looks for reasons to start runs, and whether it does them
	StartedAt      time.Time
	SeenAt         time.Time
	GoneAt         time.Time // zero: it holds its lease, and may write
	Why            string    // it is gone
}

// Alive reports whether a node holds its lease.
func (n Node) Alive() bool { return n.GoneAt.IsZero() }

func (n Node) String() string {
	return fmt.Sprintf("%s (process %d on %s, since %s)", n.Name, n.PID, n.Host, n.StartedAt.UTC().Format(time.RFC3339))
}

const nodeColumns = `id, name, home, host, pid, version, config, address, triggers, work, started_at, seen_at, gone_at, why`

func scanNode(rows *sql.Rows) (Node, error) {
	var n Node
	var triggers, work, started, seen, gone int64
	err := rows.Scan(&n.ID, &n.Name, &n.Home, &n.Host, &n.PID, &n.Version, &n.Config, &n.Address, &triggers, &work, &started, &seen, &gone, &n.Why)
	n.Triggers, n.Work = triggers != 0, work != 0
	n.StartedAt, n.SeenAt, n.GoneAt = instant(started), instant(seen), instant(gone)
	return n, err
}

// Nodes lists the processes that work on the ledger together, and those that were the last of their name; none where
// there is one process.
func (l *Ledger) Nodes(ctx context.Context) ([]Node, error) {
	rows, err := l.read.QueryContext(ctx, `select `+nodeColumns+` from nodes n where gone_at = 0 or id = (select max(id) from nodes m where m.name = n.name) order by name, id`)
	return collect(rows, err, scanNode)
}

// AliveNodes lists the processes that work on the ledger together, the one that has done so for longest first.
func (l *Ledger) AliveNodes(ctx context.Context) ([]Node, error) {
	rows, err := l.statements.query(ctx, `select `+nodeColumns+` from nodes where gone_at = 0 order by id`)
	return collect(rows, err, scanNode)
}

// AttemptNodes are the names of the nodes that made the attempts of a run, by number; none where there is one process.
func (l *Ledger) AttemptNodes(ctx context.Context, run int64) (map[int]string, error) {
	rows, err := l.statements.query(ctx, `select a.number, n.name from attempts a join nodes n on n.id = a.node where a.run = $1`, run)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	names := map[int]string{}
	for rows.Next() {
		var number int
		var name string
		if err := rows.Scan(&number, &name); err != nil {
			return nil, err
		}
		names[number] = name
	}
	return names, rows.Err()
}

// Orphans lists the runs with an attempt in progress whose process is gone. Of a ledger that one process has to itself,
// these are all that are in progress; it must not have begun any. One that can be shared is asked by its nodes.
func (l *Ledger) Orphans(ctx context.Context) ([]Run, error) {
	switch {
	case l.member.Load() != nil:
	case l.db != nil:
		return nil, errNotJoined
	default:
		return l.Running(ctx)
	}

	rows, err := l.statements.query(ctx, `select `+runColumns+` from runs where state = 'running' and state <> 'finished'
		and not exists (select 1 from attempts a join nodes n on n.id = a.node where a.run = runs.id and a.number = runs.attempt and n.gone_at = 0) order by id`)
	return collect(rows, err, scanRuns)
}

// Lanes are those that runs of other nodes have, and where agents have their files.
type Lanes struct {
	Agents, Jobs map[string]int
	Homes        map[string]string // the node of an agent's files, by the agent
}

// LanesElsewhere are the lanes of the runs that other nodes do; none where there is one process.
func (l *Ledger) LanesElsewhere(ctx context.Context) (Lanes, error) {
	lanes := Lanes{Agents: map[string]int{}, Jobs: map[string]int{}, Homes: map[string]string{}}
	m := l.member.Load()
	if m == nil {
		return lanes, nil
	}

	rows, err := l.statements.query(ctx, `select r.agent, r.job, count(*) from runs r join attempts a on a.run = r.id and a.number = r.attempt
		where r.state = 'running' and r.state <> 'finished' and a.node <> $1 group by r.agent, r.job`, m.node.ID)
	if err != nil {
		return lanes, err
	}
	defer rows.Close()

	for rows.Next() {
		var agent, job string
		var n int
		if err := rows.Scan(&agent, &job, &n); err != nil {
			return lanes, err
		}
		lanes.Agents[agent] += n
		if job != "" {
			lanes.Jobs[job] += n
		}
	}
	if err := rows.Err(); err != nil {
		return lanes, err
	}

	lanes.Homes, err = l.agentHomes(ctx)
	return lanes, err
}

func (l *Ledger) agentHomes(ctx context.Context) (map[string]string, error) {
	rows, err := l.statements.query(ctx, `select agent, node from agent_homes`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	homes := map[string]string{}
	for rows.Next() {
		var agent, node string
		if err := rows.Scan(&agent, &node); err != nil {
			return nil, err
		}
		homes[agent] = node
	}
	return homes, rows.Err()
}

// Start asks for an attempt of a run.
type Start struct {
	Run int64
	// The lanes that the run's agent and its job have, over all nodes; 0: as many as are wanted. Where one process has
	// the ledger to itself, that counts them.
	AgentLanes, JobLanes int
}

// lockLanes lets one node at a time start runs, so that their lanes can be counted. It comes before the lock of a run:
// nodes that take both in another order would wait for each other.
func (l *Ledger) lockLanes(tx *sqlite.Tx) error {
	m := l.member.Load()
	if m == nil {
		return nil
	}
	_, err := tx.Exec(`select pg_advisory_xact_lock($1::int, $2::int)`, m.class, lockLanes)
	return err
}

// lane is what a run needs one of: those of an agent, or of a job.
type lane struct{ query, name string }

const (
	agentLanesTaken = `select count(*) from runs where state = 'running' and state <> 'finished' and agent = $1`
	jobLanesTaken   = `select count(*) from runs where state = 'running' and state <> 'finished' and job = $1`
)

// checkLanes says whether the lanes of a run are free on all nodes, and whether its agent's files are here. full are those
// that were not, in the same transaction: other nodes free them at any time, and the run that asked first comes first.
func (l *Ledger) checkLanes(tx *sqlite.Tx, m *Membership, r Run, s Start, full map[lane]bool, now time.Time) error {
	for lane, most := range map[lane]int{{agentLanesTaken, r.Agent}: s.AgentLanes, {jobLanesTaken, r.Job}: s.JobLanes} {
		if most <= 0 || lane.name == "" {
			continue
		}

		taken := most
		if !full[lane] {
			if err := tx.QueryRow(lane.query, lane.name).Scan(&taken); err != nil {
				return err
			}
		}
		if taken >= most {
			full[lane] = true
			return fmt.Errorf("run %d finds no lane of %s, all %d are taken: %w", r.ID, lane.name, most, ErrNoLane)
		}
	}

	if r.Agent == "" {
		return nil
	}
	var home string
	if _, err := tx.Exec(`insert into agent_homes (agent, node, since) values ($1, $2, $3) on conflict do nothing`, r.Agent, m.node.Home, ms(now)); err != nil {
		return err
	}
	if err := tx.QueryRow(`select node from agent_homes where agent = $1`, r.Agent).Scan(&home); err != nil {
		return err
	}
	if home != m.node.Home {
		return fmt.Errorf("run %d belongs to the node %s, where its agent's files are: %w", r.ID, home, ErrNotClaimable)
	}
	return nil
}

// markGone takes a node's lease, unless it has been seen since n was read; false: it has, or somebody else was first.
func markGone(ctx context.Context, db execer, n Node, why string) (bool, error) {
	// For update, which waits for the transactions of the node that are on (fence).
	done, err := db.ExecContext(ctx, `with lease as (select id from nodes where id = $2 and gone_at = 0 and seen_at = $3 for update)
		update nodes set gone_at = `+databaseClock+`, why = $1 from lease where nodes.id = lease.id`, why, n.ID, ms(n.SeenAt))
	if err != nil {
		return false, err
	}
	rows, err := done.RowsAffected()
	return rows > 0, err
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// NameTakenError is a node that cannot start, because another one of its name is at work.
type NameTakenError struct{ Other Node }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("a node named %s is at work already; give this one another name (node, in its configuration or --node), or stop that one", e.Other)
}

// ErrLeaseLost is what every write fails with once other nodes have taken this one for dead: they do its work.
var ErrLeaseLost = errors.New("this node has lost its lease: the others have not heard of it for too long, and do its work now")

var errNotJoined = errors.New("this process has not joined the nodes of the ledger, and cannot know whose attempts are over")

// ErrPooled is a connection through a pooler that gives each transaction another session.
var ErrPooled = errors.New("the database is reached through a pooler that gives each transaction another connection (PgBouncer in transaction mode): locks and notifications get lost there; connect to PostgreSQL itself, or pool by session")

// Lead reports whether this process is the one that does what one has to do: fire schedules, send notices, remove what is
// over. It is the node that has been at work for longest of those that look for reasons to start runs. A process that has
// the ledger to itself leads always.
func (l *Ledger) Lead(ctx context.Context) (bool, error) {
	m := l.member.Load()
	if m == nil {
		return true, nil
	}

	var first int64
	err := l.statements.row(ctx, `select coalesce(min(id), 0) from nodes where gone_at = 0 and triggers = 1`).Scan(&first)
	return first == m.node.ID, err
}
