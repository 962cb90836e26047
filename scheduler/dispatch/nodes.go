package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

const (
	// readNodesEvery is how often the nodes of a shared ledger are looked at.
	readNodesEvery = 200 * time.Millisecond
	// restFor is how long a run rests that a node has sent back, because it cannot start there. It doubles with each time, up to maxRest.
	restFor = 100 * time.Millisecond
	maxRest = 15 * time.Second
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
	next   time.Time         // when a run may be sent that has to wait for no change
	sent   map[int64]sending // what was sent to nodes, and has not begun
}

// sending is how often a run was sent to a node, and when it may be sent again.
type sending struct {
	attempt int // that it has had
	times   int
	again   time.Time
}

// readNodes says whether this process decides which runs start: one does for all that share a ledger. That one learns what the nodes do;
// all of them end what a node has left behind that is gone.
func (d *Dispatcher) readNodes(ctx, writing context.Context, now time.Time) (leads bool, err error) {
	if d.o.Ledger.Membership() == nil {
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
	d.nodes.now, d.nodes.next = now, time.Time{}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes.SetNodes(d.nodes, sent)
	return true, nil
}

// lookForLead looks whether this process leads, and after what nodes that are gone have left.
func (d *Dispatcher) lookForLead(ctx, writing context.Context) error {
	if err := d.stopCancelled(ctx); err != nil { // whose notification was lost
		return err
	}
	leads, err := d.o.Ledger.Lead(ctx)
	if err != nil {
		return fmt.Errorf("which node leads cannot be read: %w", err)
	}
	if leads {
		err = d.o.Ledger.TakeBack(ctx)
	}
	if err := errors.Join(err, d.rescue(writing)); err != nil {
		d.log.Error("what nodes that are gone have left could not be taken; it is tried again", "error", err)
	}
	switch {
	case !leads:
		d.nodes = nil
	case d.nodes == nil:
		d.nodes = &nodes{placed: d.placed, sent: map[int64]sending{}}
		d.rereadQueue(d.o.Now())
	}
	d.leads.Store(leads)
	return nil
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
		if _, known := n.lanes[node]; known || s.Queue == ledger.AnyQueue {
			n.take(node)
		}
		if s.On {
			delete(n.sent, s.Run)
		}
	}
	for id, s := range n.sent { // of runs that have ended
		if n.now.Sub(s.again) > maxRest {
			delete(n.sent, id)
		}
	}
}

// send keeps in mind that a run is sent to a node.
func (n *nodes) send(r queuedRun) {
	times := n.sent[r.id].times
	n.sent[r.id] = sending{r.attempt, times + 1, n.now.Add(min(restFor<<min(times, 10), maxRest))}
}

// rests reports whether a run that a node has sent back has to wait.
func (n *nodes) rests(r ledger.Run) bool {
	s, sent := n.sent[r.ID]
	if sent && s.attempt != r.Attempt { // it has begun since
		delete(n.sent, r.ID)
		return false
	}
	if !sent || !n.now.Before(s.again) {
		return false
	}
	n.next = domain.Earlier(n.next, s.again)
	return true
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
			n.next = domain.Earlier(n.next, comes)
			return "", false
		}
	}
	return "", n.free > 0
}
