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

// AgentHome says which node has the database and the files of an agent.
type AgentHome struct {
	Agent string
	Node  string
	Lease int64 // grows each time that another node gets them
	State HomeState
	Works bool // the node is there, and does runs
}

// HomeState says whether other nodes can get what an agent has.
type HomeState int

// The states, as they are on disk.
const (
	HomeAlone HomeState = iota // the node alone has it, or has files that do not come along
	HomeKept                   // all of it is in the ledger's database as well
	HomeNew                    // the node has just been given the agent, which had nothing: what it does first settles that
)

// Free says whether another node can get the agent.
func (s HomeState) Free() bool { return s != HomeAlone }

// ErrAgentAway is a run whose agent another node does not give away just now; it may do so in a moment.
var ErrAgentAway = fmt.Errorf("%w: its agent is in use", record.ErrNotClaimable)

// AgentElsewhereError is an agent's database, or its files, that another node has.
type AgentElsewhereError struct{ Agent, Node string }

func (e *AgentElsewhereError) Error() string {
	return fmt.Sprintf("the database and the files of %s are at the node %s now", e.Agent, e.Node)
}

const agentHomeColumns = `h.agent, h.node, h.lease, h.kept, exists (select 1 from nodes n where n.home = h.node and n.gone_at = 0 and n.lanes > 0)`

func agentHomeFields(h *AgentHome) []any {
	return []any{&h.Agent, &h.Node, &h.Lease, &h.State, &h.Works}
}

// AgentHomes lists the agents whose database and files are at a node, by their names.
func (l *Nodes) AgentHomes(ctx context.Context) (map[string]AgentHome, error) {
	all, err := store.List(store.Reads(ctx, l.DB), agentHomeFields, `select `+agentHomeColumns+` from agent_homes h`)
	homes := make(map[string]AgentHome, len(all))
	for _, h := range all {
		homes[h.Agent] = h
	}
	return homes, err
}

// AgentHome says which node has an agent's database and files. Those of an agent that had none are node's from now on.
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

// takeHome says whether this node may do a run of an agent: where it has the agent's database and files, and where it can get them,
// which it does with that. Those of an agent that had none are its from now on.
func (l *Nodes) takeHome(tx *store.Tx, r record.Run, now time.Time) error {
	m := l.member.Load()
	if r.Agent == "" || m == nil {
		return nil
	}
	node := m.node
	tx.Run(`insert into agent_homes (agent, node, since, kept) values ($1, $2, $3, $4) on conflict do nothing`, r.Agent, node.Home, store.Millis(now), int(HomeNew))

	// Runs are started one after the other (Start), so that it stays where it is meanwhile.
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

	// What the node before is shipping just now (AgentCopies.Put) comes first, and all other starts do not wait for it.
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

// TakeAgents gives the database and files of agents to a node; with local, those that lie in its home count from then on, whatever
// was shipped. It is refused while another node has them that is at work.
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

			// What is on its way under the lease before comes first.
			tx.Run(`select agent from agent_homes where agent = $1`+l.DB.ForUpdate, agent)
			if local { // what was shipped does not count any more
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
