package dispatch

import (
	"context"
	"fmt"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

const (
	// readNodesEvery is how often the nodes of a shared ledger are looked at.
	readNodesEvery = 200 * time.Millisecond
	// comeAfter is how long a run is left to the node that has its agent's database while that has no lane free, before another one gets
	// both: agents would else go to and fro.
	comeAfter = 5 * time.Second
)

// nodes are those of a shared ledger as the one that leads sees them: where agents are, and which lanes are free.
type nodes struct {
	lanes  map[string]int // free ones of each node that does runs
	free   int            // over all nodes
	homes  map[string]ledger.AgentHome
	placed func(job, agent string) string // the node that alone may do a run, "" for any
	now    time.Time
	comes  time.Time // when a run may be done by another node than that of its agent
}

// readNodes says whether this process decides which runs start: one does for all that share a ledger. That one learns what the nodes do;
// all of them end what a node has left behind that is gone.
func (d *Dispatcher) readNodes(ctx, writing context.Context, now time.Time) (leads bool, err error) {
	if d.o.Ledger.Membership() == nil {
		return true, nil
	}
	if now.Sub(d.nodesRead).Abs() >= readNodesEvery {
		d.nodesRead = now
		if err := d.stopCancelled(ctx); err != nil { // whose notification was lost
			return false, err
		}
		leads, err := d.o.Ledger.Lead(ctx)
		if err != nil {
			return false, fmt.Errorf("which node leads cannot be read: %w", err)
		}
		if err := d.rescue(writing); err != nil {
			return false, fmt.Errorf("rescuing what nodes that are gone have left: %w", err)
		}
		if leads && d.nodes == nil {
			d.nodes = &nodes{placed: d.placed}
			d.rereadQueue(now)
		}
		if !leads {
			d.nodes = nil
		}
		d.leads.Store(leads)
	}
	if d.nodes == nil {
		return false, nil
	}

	alive, err := d.o.Ledger.AliveNodes(ctx)
	if err == nil {
		d.nodes.homes, err = d.o.Ledger.AgentHomes(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("the nodes cannot be read: %w", err)
	}
	sent, err := d.o.Ledger.SentRuns(ctx)
	if err != nil {
		return false, fmt.Errorf("what the nodes do cannot be read: %w", err)
	}
	d.nodes.count(alive, sent)
	d.nodes.now, d.nodes.comes = now, time.Time{}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes.SetNodes(d.nodes, sent)
	return true, nil
}

// Leads reports whether this process decides which runs start. What one has left that did so before is over then.
func (d *Dispatcher) Leads() bool { return d.leads.Load() }

// placed is the node that alone may do the runs of a job and an agent, "" for any.
func (d *Dispatcher) placed(job, agent string) string {
	node := d.o.Executor.Policy(job).Node
	if node == "" && d.o.Placed != nil {
		node = d.o.Placed(agent)
	}
	return node
}

// count counts the free lanes.
func (n *nodes) count(alive []ledger.Node, sent []ledger.SentRun) {
	n.lanes, n.free = map[string]int{}, 0
	queues := map[string]string{}
	for _, a := range alive {
		if a.Lanes > 0 {
			n.lanes[a.Name] = a.Lanes
			n.free += a.Lanes
			queues[ledger.Queue(a.Name)] = a.Name
		}
	}
	for _, s := range sent {
		node := s.Node
		if !s.On {
			node = queues[s.Queue]
		}
		if _, known := n.lanes[node]; !s.Rests && (known || s.Queue == ledger.AnyQueue) {
			n.take(node)
		}
	}
}

// take takes a lane of a node, or of any.
func (n *nodes) take(node string) {
	n.free--
	if node != "" {
		n.lanes[node]--
	}
}

// place says which node may do a run now, "" for any; false: none may. busy says that runs of its agent are on.
func (n *nodes) place(r queuedRun, busy bool) (node string, ok bool) {
	only := n.placed(r.key.job, r.key.agent)
	home, known := n.homes[r.key.agent]
	if known && (busy || !home.State.Free()) { // what the agent has is in use there, or there alone
		if only != "" && only != home.Node {
			return "", false
		}
		only = home.Node
	}
	if only != "" {
		return only, n.lanes[only] > 0
	}

	if free, works := n.lanes[home.Node]; known && works {
		if free > 0 {
			return home.Node, true
		}
		if comes := r.since.Add(comeAfter); n.now.Before(comes) {
			n.comes = domain.Earlier(n.comes, comes)
			return "", false
		}
	}
	return "", n.free > 0
}
