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

func nodeFields(n *Node) []any {
	return []any{&n.ID, &n.Name, &n.Home, &n.Host, &n.PID, &n.Version, &n.Config, &n.Address, &n.Triggers, &n.Work, at(&n.StartedAt), at(&n.SeenAt), at(&n.GoneAt), &n.Why}
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

	return list(l.reads(ctx), runFields, `select `+runColumns+` from runs where state = 'running' and state <> 'finished'
		and not exists (select 1 from attempts a join nodes n on n.id = a.node where a.run = runs.id and a.number = runs.attempt and n.gone_at = 0) order by id`)
}

// Lanes are those that runs of other nodes have, and where agents have their files.
type Lanes struct {
	Agents, Jobs map[string]int
	Homes        map[string]AgentHome // by the agent
}

// RemoteChanges counts what other nodes have written, as far as this process has heard of it: what is read of them is the
// same as before where this is.
func (l *Ledger) RemoteChanges() int64 { return l.remote.Load() }

// LanesElsewhere are the lanes of the runs that other nodes do; none where there is one process.
func (l *Ledger) LanesElsewhere(ctx context.Context) (Lanes, error) {
	lanes := Lanes{Agents: map[string]int{}, Jobs: map[string]int{}, Homes: map[string]AgentHome{}}
	m := l.member.Load()
	if m == nil {
		return lanes, nil
	}

	type count struct {
		agent, job string
		n          int
	}
	taken, err := list(l.reads(ctx), func(c *count) []any { return []any{&c.agent, &c.job, &c.n} }, `select r.agent, r.job, count(*)
		from runs r join attempts a on a.run = r.id and a.number = r.attempt
		where r.state = 'running' and r.state <> 'finished' and a.node <> $1 group by r.agent, r.job`, m.node.ID)
	if err != nil {
		return lanes, err
	}
	for _, c := range taken {
		lanes.Agents[c.agent] += c.n
		if c.job != "" {
			lanes.Jobs[c.job] += c.n
		}
	}

	lanes.Homes, err = l.AgentHomes(ctx)
	return lanes, err
}

// Start asks for an attempt of a run.
type Start struct {
	Run int64
	// The lanes that the run's agent and its job have, over all nodes; 0: as many as are wanted. Where one process has
	// the ledger to itself, that counts them.
	AgentLanes, JobLanes int
	// Behind keeps the run of an instant queued while another run of its job waits for a person.
	Behind bool
}

// startShared is Start for a node. One node at a time starts runs, so that their lanes can be counted, and all nodes read the
// same queue: what is asked here costs as much for many runs as for one.
func (l *Ledger) startShared(ctx context.Context, m *Membership, starts []Start, now time.Time) ([]Started, error) {
	out := make([]Started, len(starts))
	ids := make([]int64, len(starts))
	none := func() {
		for i, s := range starts {
			ids[i] = s.Run
			out[i] = startedRun(s.Run, Run{}, now, fmt.Errorf("run %d does not wait for a start any more: %w", s.Run, ErrNotClaimable))
		}
	}
	none()
	if left, err := l.anyWaits(ctx, ids); err != nil || !left {
		return out, err
	}

	err := l.do(ctx, func(tx *sqlite.Tx) error {
		none() // it may run again

		// Before the lock of a run or a claim: nodes that take both in another order would wait for each other.
		if _, err := tx.Exec(`select pg_advisory_xact_lock($1::int, $2::int)`, m.class, lockLanes); err != nil {
			return err
		}
		// Those that other nodes have begun are not waited for, which may be about to be finished.
		locked, err := list(tx, runFields, `select `+runColumns+` from runs where id = any($1::bigint[]) and state in ('queued', 'waiting') order by id for update`, ids)
		if err != nil {
			return err
		}
		runs := map[int64]Run{}
		for _, r := range locked {
			runs[r.ID] = r
		}

		taken := map[lane]int{}
		var begun []Run
		for i, s := range starts {
			r, ok := runs[s.Run]
			// Since it was read another node may have begun it, and have it wait for its next attempt.
			if !ok || r.NotBefore.After(now) {
				continue
			}

			next, err := nextAttempt(r, now)
			if err == nil {
				err = checkBehind(tx, r, s)
			}
			if err == nil {
				err = l.checkLanes(tx, m, r, s, taken, now)
			}
			switch {
			case err == nil:
				runs[s.Run] = next
				begun = append(begun, next)
				out[i] = startedRun(s.Run, next, now, nil)
			case errors.Is(err, ErrNotClaimable):
				out[i] = startedRun(s.Run, r, now, err)
			default:
				return err
			}
		}
		return m.begin(tx, begun, now)
	})
	return out, err
}

// anyWaits reports whether one of the runs still waits to be started: a transaction for none would be one that others wait for.
func (l *Ledger) anyWaits(ctx context.Context, ids []int64) (bool, error) {
	return value[bool](l.reads(ctx), `select exists (select 1 from runs where id = any($1::bigint[]) and state in ('queued', 'waiting'))`, ids)
}

// begin writes down that runs have an attempt of this node.
func (m *Membership) begin(tx *sqlite.Tx, runs []Run, now time.Time) error {
	if len(runs) == 0 {
		return nil
	}

	ids, numbers, jobs, data := make([]int64, len(runs)), make([]int64, len(runs)), make([]string, len(runs)), make([]string, len(runs))
	for i, r := range runs {
		ids[i], numbers[i], jobs[i], data[i] = r.ID, int64(r.Attempt), r.Job, fmt.Sprintf(`{"attempt":%d}`, r.Attempt)
		endBlock(tx, r, now)
	}

	for _, write := range []struct {
		query string
		args  []any
	}{
		{`update runs set state = 'running', waiting_for = '', not_before = 0, attempt = attempt + 1, started_at = case started_at when 0 then $2 else started_at end
			where id = any($1::bigint[])`, []any{ids, ms(now)}},
		{`insert into attempts (run, number, state, started_at, node) select run, number, 'running', $3, $4 from unnest($1::bigint[], $2::bigint[]) begun(run, number)`, []any{ids, numbers, ms(now), m.node.ID}},
		{`insert into events (run, seq, job, at, kind, data)
			select begun.run, (select coalesce(max(seq), 0) + 1 from events where run = begun.run and run <> 0), begun.job, $4, 'run.started', begun.data
			from unnest($1::bigint[], $2::text[], $3::text[]) begun(run, job, data)`, []any{ids, jobs, data, ms(now)}},
	} {
		if _, err := tx.Exec(write.query, write.args...); err != nil {
			return err
		}
	}
	return nil
}

// lane is what a run needs one of: those of an agent, or of a job.
type lane struct{ query, name string }

const (
	agentLanesTaken = `select count(*) from runs where state = 'running' and state <> 'finished' and agent = $1`
	jobLanesTaken   = `select count(*) from runs where state = 'running' and state <> 'finished' and job = $1`
)

// checkLanes says whether the lanes of a run are free on all nodes, and whether its agent's files are here. What is taken is
// counted once in a transaction: other nodes free lanes at any time, and of two runs the one that asked first comes first.
func (l *Ledger) checkLanes(tx *sqlite.Tx, m *Membership, r Run, s Start, taken map[lane]int, now time.Time) error {
	for of, most := range map[lane]int{{agentLanesTaken, r.Agent}: s.AgentLanes, {jobLanesTaken, r.Job}: s.JobLanes} {
		if most <= 0 || of.name == "" {
			continue
		}

		n, counted := taken[of]
		if !counted {
			if err := tx.QueryRow(of.query, of.name).Scan(&n); err != nil {
				return err
			}
			taken[of] = n
		}
		if n >= most {
			return fmt.Errorf("run %d finds no lane of %s, all %d are taken: %w", r.ID, of.name, most, ErrNoLane)
		}
	}

	if err := l.takeHome(tx, m, r, now); err != nil {
		return err
	}
	for _, of := range []lane{{agentLanesTaken, r.Agent}, {jobLanesTaken, r.Job}} {
		if n, counted := taken[of]; counted {
			taken[of] = n + 1
		}
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

	first, err := value[int64](l.reads(ctx), `select coalesce(min(id), 0) from nodes where gone_at = 0 and triggers = 1`)
	return first == m.node.ID, err
}
