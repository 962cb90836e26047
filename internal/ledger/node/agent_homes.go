package node

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// AgentHome records the node that has the database and the files of an agent.
type AgentHome struct {
	Agent string
	Node  string
	Lease int64 // increases each time that another node takes over the agent
	State HomeState
	Works bool // whether the node is alive and executes runs
}

// HomeState is the ability of other nodes to take over an agent.
type HomeState int

// The states, as they are stored.
const (
	HomeAlone HomeState = iota // only the node has the data, or has files that are not copied
	HomeKept                   // the ledger's database has a complete copy
	HomeNew                    // the node has just received an agent without data; its first action sets the state
)

// Free reports whether another node can take over the agent.
func (s HomeState) Free() bool { return s != HomeAlone }

// ErrAgentAway is returned for a run if another node does not release the agent now. It may do so
// soon.
var ErrAgentAway = fmt.Errorf("%w: its agent is in use", record.ErrNotClaimable)

// AgentElsewhereError is returned if another node has the database and the files of an agent.
type AgentElsewhereError struct{ Agent, Node string }

func (e *AgentElsewhereError) Error() string {
	return fmt.Sprintf("the database and the files of %s are at the node %s now", e.Agent, e.Node)
}

const agentHomeColumns = `h.agent, h.node, h.lease, h.kept, exists (select 1 from nodes n where n.home = h.node and n.gone_at = 0 and n.lanes > 0)`

func agentHomeFields(h *AgentHome) []any {
	return []any{&h.Agent, &h.Node, &h.Lease, &h.State, &h.Works}
}

// AgentHomes returns the homes of all agents that have one, by agent name.
func (l *Nodes) AgentHomes(ctx context.Context) (map[string]AgentHome, error) {
	all, err := store.List(store.Reads(ctx, l.DB), agentHomeFields, `select `+agentHomeColumns+` from agent_homes h`)
	homes := make(map[string]AgentHome, len(all))
	for _, h := range all {
		homes[h.Agent] = h
	}
	return homes, err
}

// AgentHome returns the home of an agent. An agent without a home gets node as its home.
func (l *Nodes) AgentHome(ctx context.Context, agent, node string) (AgentHome, error) {
	const query = `select ` + agentHomeColumns + ` from agent_homes h where h.agent = $1`
	var h AgentHome
	err := l.insist(ctx, func() (err error) {
		h, err = store.One(store.Reads(ctx, l.DB), agentHomeFields, query, agent)
		return err
	})
	if !errors.Is(err, sql.ErrNoRows) {
		return h, err
	}

	err = store.Write(ctx, l.DB, func(tx *store.Tx) error {
		_, err := tx.Exec(`insert into agent_homes (agent, node, since, kept) values ($1, $2, $3, $4) on conflict do nothing`, agent, node, store.Millis(l.DB.Now()), int(HomeNew))
		return err
	})
	if err != nil {
		return h, err
	}
	return store.One(store.Reads(ctx, l.DB), agentHomeFields, query, agent)
}

// takeHome ensures that this node has the agent of a run that is about to start. If another node
// has the agent and it is free, this node takes it over. If the agent has no home, this node
// becomes its home. It returns an error that wraps ErrNotClaimable if the run cannot start here.
func (l *Nodes) takeHome(tx *store.Tx, r record.Run, now time.Time) error {
	m := l.member.Load()
	if r.Agent == "" || m == nil {
		return nil
	}
	node := m.node
	tx.Run(`insert into agent_homes (agent, node, since, kept) values ($1, $2, $3, $4) on conflict do nothing`, r.Agent, node.Home, store.Millis(now), int(HomeNew))

	// Starts are serialized by Start, so the home does not change in the meantime.
	const query = `select node, kept from agent_homes where agent = $1`
	var home string
	var state HomeState
	if err := tx.QueryRow(query, r.Agent).Scan(&home, &state); err != nil {
		return err
	}
	if home == node.Home {
		return nil
	}
	if !state.Free() {
		return fmt.Errorf("run %d belongs to the node %s, which alone has its agent's database and files: %w", r.ID, home, record.ErrNotClaimable)
	}

	var busy string
	err := tx.QueryRow(`select n.name from runs r join attempts a on a.run = r.id and a.number = r.attempt join nodes n on n.id = a.node
		where r.state = 'running' and r.state <> 'finished' and r.agent = $1 and n.gone_at = 0 and n.home <> $2 limit 1`, r.Agent, node.Home).Scan(&busy)
	switch {
	case err == nil:
		return fmt.Errorf("run %d waits for the other runs of its agent, which the node %s does: %w", r.ID, busy, ErrAgentAway)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}

	// A copy that the other node is writing (AgentCopies.Put) has priority. Skip the locked row, so
	// that other starts do not wait for it.
	err = tx.QueryRow(query+` for update skip locked`, r.Agent).Scan(&home, &state)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !state.Free() {
		return fmt.Errorf("run %d waits for what the node %s is shipping of its agent: %w", r.ID, home, ErrAgentAway)
	}
	if err != nil {
		return err
	}
	tx.Run(`update agent_homes set node = $2, lease = lease + 1, since = $3 where agent = $1`, r.Agent, node.Home, store.Millis(now))
	return nil
}

// TakeAgents makes a node the home of agents. With local, the data in its home directory is
// authoritative, and the copies of the agents' databases are deleted. It returns an error if
// another node that has one of the agents is alive.
func (l *Nodes) TakeAgents(ctx context.Context, node string, local bool, agents ...string) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, agent := range agents {
			var other string
			err := tx.QueryRow(`select h.node from agent_homes h where h.agent = $1 and h.node <> $2 and exists (select 1 from nodes n where n.home = h.node and n.gone_at = 0)`, agent, node).Scan(&other)
			if err == nil {
				return fmt.Errorf("the node %s is at work, and has the files of %s; stop it first", other, agent)
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}

			// Wait for writes under the previous lease.
			tx.Run(`select agent from agent_homes where agent = $1`+l.DB.ForUpdate, agent)
			if local { // the copies are obsolete
				if _, err := tx.Exec(`delete from agent_copies where agent = $1 and name >= 'db/' and name < 'db0'`, agent); err != nil {
					return err
				}
			}

			_, err = tx.Exec(`insert into agent_homes (agent, node, since) values ($1, $2, $3)
				on conflict (agent) do update set node = excluded.node, since = excluded.since, lease = agent_homes.lease + 1, kept = case when cast($4 as bigint) = 1 then 0 else agent_homes.kept end`,
				agent, node, store.Millis(l.DB.Now()), store.Flag(local))
			if err != nil {
				return err
			}
		}
		return nil
	})
}
