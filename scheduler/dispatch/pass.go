package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/record"
)

// maxPage is the maximum number of runs per read from the ledger. The first read of a pass is
// limited to twice the number of free lanes, but not below minPage.
const (
	minPage = 16
	maxPage = 512
)

// pass stops cancelled attempts and starts runs. next is the time at which further runs become
// claimable without a change of the ledger.
func (d *Dispatcher) pass(ctx, writing context.Context) (over bool, next time.Time, err error) {
	if d.o.Ledger.Nodes.Membership() == nil || d.o.Only != 0 { // else the engine is notified of cancellations
		if err := d.here.stopCancelled(ctx); err != nil {
			return false, time.Time{}, err
		}
	}
	if err := d.giveBack(ctx, writing); err != nil {
		return false, time.Time{}, err
	}

	now := d.o.Now()
	if d.o.Only != 0 {
		return d.passOnly(ctx, writing, now)
	}
	if leads, err := d.readNodes(ctx, writing, now); err != nil || !leads {
		return false, now.Add(readNodesEvery), err
	}
	if err := d.readPauses(ctx); err != nil {
		return false, time.Time{}, err
	}
	if err := d.recorder.expireQuestions(writing, now); err != nil {
		return false, time.Time{}, err
	}
	if err := d.EndMissedHolds(writing, now); err != nil {
		return false, time.Time{}, err
	}

	// Runs that were read before can become claimable again (see backlog). A deep queue is not read
	// from its start after every change.
	if !now.Before(d.queue.rereadAt()) {
		d.rereadQueue(now)
	}

	if err := d.fillLanes(ctx, writing, now); err != nil {
		d.rereadQueue(now) // runs that were dequeued and not started are still in the ledger
		return false, time.Time{}, err
	}

	next, err = d.o.Ledger.Runs.NextDue(ctx, now)
	if d.nodes != nil {
		next = domain.Earlier(domain.Earlier(next, d.nodes.next), now.Add(readNodesEvery))
	}
	// A change that came while a deep queue rested is handled after the rest.
	if again := d.queue.rereadAt(); d.queue.stale && d.free() > 0 && again.After(now) {
		next = domain.Earlier(next, again)
	}

	if d.free() > 0 { // otherwise no other run could take its lane
		next = domain.Earlier(next, d.nextLate())
	}

	// The end of a pause is not written to the ledger, so the ledger does not report it as a
	// change.
	for _, p := range d.pauses {
		if p.Until.After(now) {
			next = domain.Earlier(next, p.Until)
		}
	}

	return false, next, err
}

// readPauses reads the active pauses.
func (d *Dispatcher) readPauses(ctx context.Context) (err error) {
	if d.pauses, err = d.o.Ledger.Pauses.List(ctx, d.o.Now()); err != nil {
		return fmt.Errorf("the pauses cannot be read: %w", err)
	}
	return nil
}

// rereadQueue makes the next read begin at the start of the queue.
func (d *Dispatcher) rereadQueue(now time.Time) {
	d.queue = backlog{readFrom: now}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes.Clear()
}

// free returns the number of free lanes.
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
	d.here.forget(ids...)
}

// fillLanes starts runs from the backlog, and reads more of the queue while lanes stay free.
func (d *Dispatcher) fillLanes(ctx, writing context.Context, now time.Time) error {
	if err := d.startQueued(ctx, writing, now); err != nil {
		return err
	}

	// Usually only a few runs are queued and all start. Read further only if they do not.
	page := min(max(2*d.free(), minPage), maxPage)
	for d.free() > 0 && ctx.Err() == nil {
		runs, err := d.o.Ledger.Runs.Claimable(ctx, now, d.queue.seen, page)
		if err != nil {
			return err
		}
		if len(runs) > 0 { // another node may have set a pause and queued a run after it since the pass began
			if err := d.readPauses(ctx); err != nil {
				return err
			}
		}

		if err := d.admit(ctx, writing, now, runs); err != nil {
			return err
		}
		if len(runs) > 0 {
			d.queue.seen = runs[len(runs)-1].ID
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

// startQueued starts the oldest runs of the backlog that find free lanes.
func (d *Dispatcher) startQueued(ctx, writing context.Context, now time.Time) error {
	for ctx.Err() == nil && d.free() > 0 {
		d.mu.Lock()
		starting, late := d.lanes.Dequeue(now, d.pauses)
		d.mu.Unlock()

		// Late runs never started, so OnFinalize has nothing to complete.
		for _, w := range late {
			if err := d.recorder.finishUnstarted(writing, w.Run, ledger.Result{Outcome: domain.OutcomeSkipped, Error: LateReason(w.Waited)}); err != nil {
				for _, r := range starting {
					d.releaseLanes(r.Run)
				}
				return err
			}
		}

		if len(starting)+len(late) == 0 {
			return nil
		}
		if len(starting) > 0 {
			if err := d.o.Engine.Start(writing, starting); err != nil {
				return err
			}
		}
	}
	return nil
}

// LateReason returns the reason why a run that has waited too long was not started.
func LateReason(waited time.Duration) string {
	return fmt.Sprintf("waited %s in the queue, longer than its start_deadline", waited.Round(time.Second))
}

// passOnly handles only the run of Options.Only.
func (d *Dispatcher) passOnly(ctx, writing context.Context, now time.Time) (over bool, next time.Time, err error) {
	r, err := d.o.Ledger.Runs.Get(ctx, d.o.Only)
	if err != nil {
		return false, time.Time{}, err
	}

	switch {
	case r.State == domain.StateFinished:
		return true, time.Time{}, nil
	case r.State == domain.StateRunning:
		return false, time.Time{}, nil
	case r.WaitsForPerson(): // this process does not wait for an answer
		return true, time.Time{}, nil
	case r.NotBefore.After(now):
		return false, r.NotBefore, nil
	case !d.canRunHere(r): // another node executes it
		return false, time.Time{}, nil
	}

	if why := record.ObstaclesText(d.o.Executor.Obstacles(ctx, r)); why != "" {
		return false, time.Time{}, d.recorder.finishUnstarted(writing, r.ID, ledger.Result{Outcome: domain.OutcomeError, Error: why})
	}

	// The owner asked for this run here and now. Pauses were not read and do not stop it.
	d.mu.Lock()
	d.lanes.Clear()
	d.lanes.Add(r)
	d.mu.Unlock()

	if d.o.Ledger.Nodes.Membership() != nil { // other processes may have its lanes or its agent
		next = now.Add(time.Second)
	}
	return false, next, d.startQueued(ctx, writing, now)
}

// canRunHere reports whether a run may run on this process's node.
func (d *Dispatcher) canRunHere(r ledger.Run) bool {
	m := d.o.Ledger.Nodes.Membership()
	if m == nil {
		return true
	}
	node := d.o.placed(r.Job, r.Agent)
	return node == "" || node == m.Node().Home
}

// finishUnstarted ends a run that never started, with the notices of its end.
func (e *recorder) finishUnstarted(writing context.Context, id int64, res ledger.Result) error {
	run, err := e.o.Ledger.Runs.Get(writing, id)
	if err != nil {
		return err
	}

	res.Tell = e.o.Executor.EndNotices(run, res)
	err = e.o.Ledger.FinishUnstarted(writing, id, res)
	if errors.Is(err, ledger.ErrNotClaimable) { // it was cancelled, or another process ended it
		return nil
	}
	return err
}
