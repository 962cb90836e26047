package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
)

const (
	// readNodesEvery is the interval at which a node checks for leadership and for orphaned
	// attempts.
	readNodesEvery = 200 * time.Millisecond
	// restFor is the delay before the leader resends a run that could not start. It doubles each
	// time, up to maxRest.
	restFor = 100 * time.Millisecond
	maxRest = 15 * time.Second
	// migrateDelay is how long a run waits for the node that has its agent's database, if that node
	// has no free lane. After that, another node may take over both. The delay keeps agents from
	// moving back and forth.
	migrateDelay = 5 * time.Second
)

// nodes holds the leader's view of the nodes: their free lanes and the nodes of the agents.
type nodes struct {
	lanes  map[string]int // free lanes of each node that executes runs
	free   int            // free lanes of all nodes
	homes  map[string]node.AgentHome
	placed func(job, agent string) string // returns the only node for a run, or "" for any node
	now    time.Time
	next   time.Time         // time at which the next delay of a run ends
	sent   map[int64]sending // runs that were sent and have not started
}

// sending records how often a run was sent and when it may be sent again.
type sending struct {
	attempt int // the run's last attempt when it was sent
	times   int
	again   time.Time
}

// readNodes reports whether this process leads. If it does, readNodes reads the state of the nodes.
// Only the leader of a shared ledger starts runs.
func (d *Dispatcher) readNodes(ctx, writing context.Context, now time.Time) (leads bool, err error) {
	if d.o.Ledger.Nodes.Membership() == nil {
		return true, nil
	}
	if now.Sub(d.nodesRead).Abs() >= readNodesEvery {
		d.nodesRead = now
		if err := d.lookForLead(ctx, writing); err != nil {
			return false, err
		}
	}
	if d.nodes == nil {
		return false, nil
	}

	alive, err := d.o.Ledger.Nodes.Alive(ctx)
	if err == nil {
		d.nodes.homes, err = d.o.Ledger.Nodes.AgentHomes(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("the nodes cannot be read: %w", err)
	}
	sent, err := d.o.Ledger.Nodes.SentRuns(ctx)
	if err != nil {
		return false, fmt.Errorf("what the nodes do cannot be read: %w", err)
	}
	d.nodes.count(alive, sent)
	d.nodes.now, d.nodes.next = now, time.Time{}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes.SetNodes(d.nodes, sent)
	return true, nil
}

// lookForLead checks whether this process leads, and takes over the runs of dead nodes.
func (d *Dispatcher) lookForLead(ctx, writing context.Context) error {
	if err := d.here.stopCancelled(ctx); err != nil { // their notifications may have been lost
		return err
	}
	leads, err := d.o.Ledger.Nodes.Lead(ctx)
	if err != nil {
		return fmt.Errorf("which node leads cannot be read: %w", err)
	}
	if leads {
		err = d.o.Ledger.Nodes.TakeBack(ctx)
	}
	if err := errors.Join(err, d.recorder.rescue(writing)); err != nil {
		d.log.Error("what nodes that are gone have left could not be taken; it is tried again", "error", err)
	}
	switch {
	case !leads:
		d.nodes = nil
	case d.nodes == nil:
		d.nodes = &nodes{placed: d.o.placed, sent: map[int64]sending{}}
		d.rereadQueue(d.o.Now())
	}
	d.leads.Store(leads)
	return nil
}

// Leads reports whether this process leads. If it does, it has already ended the attempts of dead
// nodes.
func (d *Dispatcher) Leads() bool { return d.leads.Load() }

// placed returns the only node for the runs of a job and an agent, or "" for any node.
func (o *Options) placed(job, agent string) string {
	node := o.Executor.Policy(job).Node
	if node == "" && o.PinnedNode != nil {
		node = o.PinnedNode(agent)
	}
	return node
}

// count updates the free lanes.
func (n *nodes) count(alive []node.Node, sent []node.SentRun) {
	n.lanes, n.free = map[string]int{}, 0
	queues := map[string]string{}
	for _, a := range alive {
		if a.Lanes > 0 {
			n.lanes[a.Name] = a.Lanes
			n.free += a.Lanes
			queues[node.Queue(a.Name)] = a.Name
		}
	}
	for _, s := range sent {
		nodeName := s.Node
		if !s.On {
			nodeName = queues[s.Queue]
		}
		if _, known := n.lanes[nodeName]; known || s.Queue == node.AnyQueue {
			n.take(nodeName)
		}
		if s.On {
			delete(n.sent, s.Run)
		}
	}
	for id, s := range n.sent { // runs that have ended
		if n.now.Sub(s.again) > maxRest {
			delete(n.sent, id)
		}
	}
}

// send records that a run is sent to a node.
func (n *nodes) send(r queuedRun) {
	times := n.sent[r.id].times
	n.sent[r.id] = sending{r.attempt, times + 1, n.now.Add(min(restFor<<min(times, 10), maxRest))}
}

// rests reports whether a run that could not start must wait before it is sent again.
func (n *nodes) rests(r ledger.Run) bool {
	s, sent := n.sent[r.ID]
	if sent && s.attempt != r.Attempt { // it has started in the meantime
		delete(n.sent, r.ID)
		return false
	}
	if !sent || !n.now.Before(s.again) {
		return false
	}
	n.next = domain.Earlier(n.next, s.again)
	return true
}

// take takes a lane of a node. If node is "", the lane belongs to no particular node.
func (n *nodes) take(node string) {
	n.free--
	if node != "" {
		n.lanes[node]--
	}
}

// place returns the node for a run, or "" for any node. It returns false if the run cannot run on
// any node now. busy reports whether runs of its agent are running.
func (n *nodes) place(r queuedRun, busy bool) (node string, ok bool) {
	only := n.placed(r.key.job, r.key.agent)
	home, known := n.homes[r.key.agent]
	if known && (busy || !home.State.Free()) { // the agent cannot move: it is in use or has files there
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
		if comes := r.since.Add(migrateDelay); n.now.Before(comes) {
			n.next = domain.Earlier(n.next, comes)
			return "", false
		}
	}
	return "", n.free > 0
}
