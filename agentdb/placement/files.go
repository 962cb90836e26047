package placement

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"rouse/agentdb/pool"
	"rouse/internal/ledger/node"
)

// hasFiles reports whether an agent has files in the home other than its database. They do not
// move.
func (k *Manager) hasFiles(a *agent) bool {
	for _, folder := range []string{filepath.Join(k.o.Agents, a.name, "work"), filepath.Join(k.o.Agents, a.name, "home"), filepath.Join(k.o.Storage, a.name)} {
		if !isEmpty(folder) {
			return true
		}
	}
	return false
}

// isEmpty reports whether a folder is empty or missing. An unreadable folder counts as not empty.
func isEmpty(folder string) bool {
	f, err := os.Open(folder)
	if errors.Is(err, os.ErrNotExist) {
		return true
	}
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// keep records in the ledger whether other nodes can get an agent. The database must be shipped.
func (k *Manager) keep(ctx context.Context, a *agent, copies node.AgentCopies) error {
	a.keeping.Lock()
	defer a.keeping.Unlock()
	state := node.HomeKept
	if k.hasFiles(a) {
		state = node.HomeAlone
	}
	if state == a.homeState() && a.alone == (state == node.HomeAlone) {
		return nil
	}

	if err := copies.Keep(ctx, state); err != nil {
		return err
	}
	a.setState(state)
	a.alone = state == node.HomeAlone
	if a.alone {
		k.o.Logger.Info("an agent stays at this node, where it has files", "agent", a.name, "node", k.o.Node)
	}
	return nil
}

// Stay implements pool.Sharing.
func (k *Manager) Stay(ctx context.Context, name string, h pool.Hold) error {
	a := k.agent(name)
	a.keeping.Lock()
	defer a.keeping.Unlock()
	if err := k.o.Ledger.Nodes.AgentCopies(node.AgentHome{Agent: name, Node: k.o.Node, Lease: h.Lease}).Keep(ctx, node.HomeAlone); err != nil {
		return err
	}
	a.setState(node.HomeAlone)
	return nil
}

// Acquire moves an agent to this node before a run begins and ships its database if necessary. It
// returns *node.AgentElsewhereError if another node has the agent.
func (k *Manager) Acquire(ctx context.Context, name string) error {
	h, err := k.Hold(ctx, name)
	if err != nil {
		return err
	}
	if h.Node != "" {
		return &node.AgentElsewhereError{Agent: name, Node: h.Node}
	}

	a := k.agent(name)
	if a.homeState() != node.HomeKept || !k.lease(a).holds(h.Lease) {
		if err := k.pool.Ship(ctx, name); err != nil {
			return err
		}
	}
	return k.Pin(ctx, name)
}

// AcquireAll ships the databases of this node's agents that are not shipped yet, so that other
// nodes can get them.
func (k *Manager) AcquireAll(ctx context.Context) {
	homes, err := k.o.Ledger.Nodes.AgentHomes(ctx)
	if err != nil && ctx.Err() == nil {
		k.o.Logger.Warn("whether the databases of all agents are shipped is not known; each is shipped with its next run", "error", err)
	}
	for _, h := range homes {
		if h.State == node.HomeKept || h.Node != k.o.Node {
			continue
		}
		if err := k.Acquire(ctx, h.Agent); err != nil && ctx.Err() == nil {
			k.o.Logger.Warn("the database of an agent is at this node alone; it is tried again with its next run", "agent", h.Agent, "error", err)
		}
	}
}

// Pin records in the ledger whether other nodes can get an agent. They cannot if it has files
// here. Call it before the ledger records a call that created files.
func (k *Manager) Pin(ctx context.Context, name string) error {
	a := k.agent(name)
	files := k.hasFiles(a)
	a.keeping.Lock()
	settled := files && a.alone || !files && !a.alone && a.homeState() == node.HomeKept
	a.keeping.Unlock()
	if settled {
		return nil
	}
	if !files && a.exists() {
		return nil // recorded when its database is next shipped
	}

	home, err := k.o.Ledger.Nodes.AgentHome(ctx, name, k.o.Node)
	if err != nil {
		return err
	}
	if home.Node != k.o.Node {
		return &node.AgentElsewhereError{Agent: name, Node: home.Node}
	}
	a.setState(home.State)
	return k.keep(ctx, a, k.o.Ledger.Nodes.AgentCopies(home))
}
