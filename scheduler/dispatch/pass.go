package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// maxPage is how many runs are read from the ledger at once; the first read of a pass is
// as small as what can start, and minPage at least.
const (
	minPage = 16
	maxPage = 512
	// rereadNodes is when the other nodes are looked at though nothing was heard of them.
	rereadNodes = time.Second
	// comeAfter is how long a run is left to the node that has its agent's database and is free to do it, before another one gets
	// both: agents would else go to and fro.
	comeAfter = 5 * time.Second
	// askAgain is when a run is looked at again whose agent another node did not give away.
	askAgain = time.Second
)

// pass stops what was cancelled and starts what can be started. next is when time alone makes
// more claimable.
func (d *Dispatcher) pass(ctx, writing context.Context) (over bool, next time.Time, err error) {
	if err := d.stopCancelled(ctx); err != nil {
		return false, time.Time{}, err
	}
	if err := d.giveBack(ctx, writing); err != nil {
		return false, time.Time{}, err
	}

	now := d.o.Now()
	if d.o.Only != 0 {
		return d.passOnly(ctx, writing, now)
	}
	if err := d.readPauses(ctx); err != nil {
		return false, time.Time{}, err
	}
	if err := d.readNodes(ctx, writing, now); err != nil {
		return false, time.Time{}, err
	}
	if d.leads {
		if err := d.expireQuestions(writing, now); err != nil {
			return false, time.Time{}, err
		}
		if err := d.EndMissedHolds(writing, now); err != nil {
			return false, time.Time{}, err
		}
	}

	if d.o.Idle {
		next, err = d.o.Ledger.NextDue(ctx, now)
		return false, next, err
	}
	if !d.comesAt.IsZero() && !now.Before(d.comesAt) {
		d.rereadQueue(now)
	}

	// Below what was read, runs become claimable again (backlog); a deep queue is not read from
	// its start at each change.
	if !now.Before(d.queue.rereadAt()) {
		d.rereadQueue(now)
	}

	if err := d.fillLanes(ctx, writing, now); err != nil {
		d.rereadQueue(now) // what was dequeued and not started is still in the ledger
		return false, time.Time{}, err
	}

	if d.outrun {
		return false, now, nil
	}
	next, err = d.o.Ledger.NextDue(ctx, now)
	if d.free() > 0 { // else nobody could do it
		next = domain.Earlier(next, d.comesAt)
	}
	// A change that came while the deep queue rested is looked at when that is over.
	if again := d.queue.rereadAt(); d.queue.stale && d.free() > 0 && again.After(now) {
		next = domain.Earlier(next, again)
	}

	if d.free() > 0 { // else nobody could take its place
		next = domain.Earlier(next, d.nextLate())
	}

	// The end of a pause is written nowhere, so no change of the ledger tells of it.
	for _, p := range d.pauses {
		if p.Until.After(now) {
			next = domain.Earlier(next, p.Until)
		}
	}

	return false, next, err
}

// readPauses reads the pauses when one was written since they were last read.
func (d *Dispatcher) readPauses(ctx context.Context) error {
	select {
	case <-d.pausesChanged: // never ready before the first read
	default:
		if d.pausesChanged != nil {
			return nil
		}
	}

	replanned := d.o.Ledger.PlanChanged() // before the pauses: one that is written meanwhile is read next time
	pauses, err := d.o.Ledger.Pauses(ctx, d.o.Now())
	if err != nil {
		return fmt.Errorf("the pauses cannot be read: %w", err)
	}

	d.pauses, d.pausesChanged = pauses, replanned
	return nil
}

// readNodes reads what other nodes do: what they have taken, what they have left behind, and whether this one does now what
// one node does for all.
func (d *Dispatcher) readNodes(ctx, writing context.Context, now time.Time) (err error) {
	if d.o.Ledger.Membership() == nil {
		d.leads = true
		return nil
	}

	// Before the nodes: what is written meanwhile is read next time.
	heard := d.o.Ledger.RemoteChanges()
	if heard == d.nodesHeard && !d.outrun && now.Sub(d.nodesRead).Abs() < rereadNodes {
		return nil
	}
	d.outrun = false

	if d.leads, err = d.o.Ledger.Lead(ctx); err != nil {
		return fmt.Errorf("the nodes cannot be read: %w", err)
	}
	if err := d.rescue(writing); err != nil {
		return fmt.Errorf("rescuing what nodes that are gone have left: %w", err)
	}

	lanes, err := d.o.Ledger.LanesElsewhere(ctx)
	if err != nil {
		return fmt.Errorf("what other nodes do cannot be read: %w", err)
	}
	d.nodesHeard, d.nodesRead = heard, now
	d.noteBusy(lanes, now)
	if maps.Equal(lanes.Agents, d.elsewhere.Agents) && maps.Equal(lanes.Jobs, d.elsewhere.Jobs) && maps.Equal(lanes.Homes, d.elsewhere.Homes) {
		return nil
	}

	d.elsewhere = lanes
	d.mu.Lock()
	d.lanes.SetElsewhere(lanes)
	d.mu.Unlock()
	d.rereadQueue(now) // what found no lane there may find one now
	return nil
}

// noteBusy keeps when agents were last seen to have runs at other nodes.
func (d *Dispatcher) noteBusy(lanes ledger.Lanes, now time.Time) {
	for _, busy := range []map[string]int{d.elsewhere.Agents, lanes.Agents} {
		for agent := range busy {
			d.busyAt[agent] = now
		}
	}
}

// isHere reports whether a run may be done by this node: its job may name one, and its agent's database and files are at one, or may come.
func (d *Dispatcher) isHere(r ledger.Run, now time.Time) bool {
	m := d.o.Ledger.Membership()
	if m == nil {
		return true
	}

	name := m.Node().Home
	placed := d.o.Executor.Policy(r.Job).Node
	if placed == "" && d.o.Placed != nil {
		placed = d.o.Placed(r)
	}
	if placed != "" && placed != name {
		return false
	}

	home, known := d.elsewhere.Homes[r.Agent]
	switch {
	case !known, home.Node == name:
		return true
	case !home.State.Free(), d.elsewhere.Agents[r.Agent] > 0: // they are there alone, or in use
		return false
	case !home.Works, placed == name:
		return true
	}

	since := r.QueuedAt
	for _, t := range []time.Time{r.NotBefore, d.busyAt[r.Agent]} {
		if t.After(since) {
			since = t
		}
	}
	comes := since.Add(comeAfter)
	if now.Before(comes) {
		d.comesAt = domain.Earlier(d.comesAt, comes)
		return false
	}
	return true
}

// rereadQueue makes the next read begin at the start of the queue.
func (d *Dispatcher) rereadQueue(now time.Time) {
	d.queue, d.comesAt = backlog{readFrom: now}, time.Time{}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes.Clear()
}

// free is how many lanes the daemon has left.
func (d *Dispatcher) free() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes.Free()
}

func (d *Dispatcher) nextLate() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes.NextLate()
}

// releaseLanes frees the lanes of runs.
func (d *Dispatcher) releaseLanes(ids ...int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes.Release(ids...)
	for _, id := range ids {
		delete(d.cancels, id)
	}
}

// fillLanes gives free lanes to the backlog, and reads on in the queue while lanes stay free.
func (d *Dispatcher) fillLanes(ctx, writing context.Context, now time.Time) error {
	if err := d.startQueued(ctx, writing, now); err != nil {
		return err
	}

	// Mostly a few runs are queued and all start; only when they do not is it worth reading far.
	page := min(max(2*d.free(), minPage), maxPage)
	for d.free() > 0 && ctx.Err() == nil && !d.outrun {
		runs, err := d.o.Ledger.Claimable(ctx, now, d.queue.seen, page)
		if err != nil {
			return err
		}
		if err := d.readPauses(ctx); err != nil { // a pause may have been set, and a run queued in it, since the pass began
			return err
		}

		if err := d.admit(ctx, writing, now, runs); err != nil {
			return err
		}

		d.queue.read += len(runs)
		if err := d.startQueued(ctx, writing, now); err != nil {
			return err
		}
		if len(runs) < page {
			break
		}

		page = maxPage
	}

	return nil
}

// startQueued starts the oldest runs of the backlog that find their lanes.
func (d *Dispatcher) startQueued(ctx, writing context.Context, now time.Time) error {
	for ctx.Err() == nil && d.free() > 0 && !d.outrun {
		d.mu.Lock()
		starting, late := d.lanes.Dequeue(now, d.pauses)
		d.mu.Unlock()

		// Late runs are not failures of Execute: nothing was done that OnFinalize could see to.
		for _, w := range late {
			if err := d.finishUnstarted(writing, w.Run, ledger.Result{Outcome: domain.OutcomeSkipped, Error: LateReason(w.Waited)}); err != nil {
				d.releaseLanes(starting...)
				return err
			}
		}

		if len(starting)+len(late) == 0 {
			return nil
		}
		if err := d.start(writing, starting); err != nil {
			return err
		}
	}
	return nil
}

// LateReason says why a run was not started that waited for so long.
func LateReason(waited time.Duration) string {
	return fmt.Sprintf("waited %s in the queue, longer than its start_deadline", waited.Round(time.Second))
}

// passOnly serves one run, whatever else is queued.
func (d *Dispatcher) passOnly(ctx, writing context.Context, now time.Time) (over bool, next time.Time, err error) {
	r, err := d.o.Ledger.Run(ctx, d.o.Only)
	if err != nil {
		return false, time.Time{}, err
	}

	switch {
	case r.State == domain.StateFinished:
		return true, time.Time{}, nil
	case r.State == domain.StateRunning:
		return false, time.Time{}, nil
	case r.WaitsForPerson(): // it waits for a person, and this process need not
		return true, time.Time{}, nil
	case r.NotBefore.After(now):
		return false, r.NotBefore, nil
	case !d.isHere(r, now): // the node that may do it does
		return false, d.comesAt, nil
	}

	if why := ledger.ObstaclesText(d.o.Executor.Obstacles(ctx, r)); why != "" {
		return false, time.Time{}, d.finishUnstarted(writing, r.ID, ledger.Result{Outcome: domain.OutcomeError, Error: why})
	}

	// Its owner asked for it here and now, so that pauses, which were not read, do not stop it.
	d.mu.Lock()
	d.lanes.Clear()
	d.lanes.Add(r)
	d.mu.Unlock()

	d.outrun = false
	return false, time.Time{}, d.startQueued(ctx, writing, now)
}

// start gives runs that have their lanes an attempt, all in one commit, and executes them.
func (d *Dispatcher) start(writing context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}

	starts := make([]ledger.Start, len(ids))
	d.mu.Lock()
	for i, id := range ids {
		lanes := jobLanes(d.o.Executor.Policy(d.lanes.running[id].job))
		starts[i] = ledger.Start{Run: id, AgentLanes: d.lanes.perAgent, JobLanes: lanes, Behind: lanes > 0 && d.o.Only == 0}
	}
	d.mu.Unlock()

	do := d.o.Executor.Freeze()
	started, err := d.o.Ledger.Start(writing, starts...)
	if err != nil {
		d.unsure = append(d.unsure, ids...)
		d.releaseLanes(ids...)
		return err
	}

	for i, id := range ids {
		if started[i].Err != nil { // no longer claimable: cancelled since it was read, or another node was first
			d.releaseLanes(id)
			switch {
			case errors.Is(started[i].Err, ledger.ErrNoLane):
				d.waitElsewhere(started[i].Run)
			case errors.Is(started[i].Err, ledger.ErrAgentAway):
				d.comesAt = domain.Earlier(d.comesAt, d.o.Now().Add(askAgain))
			}
			continue
		}

		// Not from the context of Run: an attempt outlives it, until drain ends the attempt.
		work, cancel := context.WithCancelCause(writing)
		d.mu.Lock()
		d.cancels[id] = cancel
		d.mu.Unlock()
		d.attempts.Go(func() { d.execute(work, writing, started[i].Run, started[i].Attempt, do, cancel) })
	}

	return nil
}

// waitElsewhere puts a run back whose lanes other nodes have. Nothing else starts before their lanes were read again: what is
// behind it would get the lane, as soon as it is free.
func (d *Dispatcher) waitElsewhere(r ledger.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes.Add(r)
	d.outrun = true
}

// finishUnstarted ends a run that never got to work, with the notices that its owner wants.
func (d *Dispatcher) finishUnstarted(writing context.Context, id int64, res ledger.Result) error {
	run, err := d.o.Ledger.Run(writing, id)
	if err != nil {
		return err
	}

	res.Tell = d.o.Executor.Tells(run, res)
	err = d.o.Ledger.FinishUnstarted(writing, id, res)
	if errors.Is(err, ledger.ErrNotClaimable) { // it was cancelled, or ended by somebody else
		return nil
	}
	return err
}
