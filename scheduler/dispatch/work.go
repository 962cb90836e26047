package dispatch

import (
	"context"
	"errors"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// Work executes a run that an engine has sent to this process, and returns at the end of the
// attempt. job is the engine's job. If the run cannot start here now, Work returns nil, and the
// leader sends the run again later.
func (d *Dispatcher) Work(ctx context.Context, id, job int64) error {
	writing := context.WithoutCancel(ctx)
	r, err := d.o.Ledger.Runs.Get(writing, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil
	}
	now := d.o.Now()
	if err != nil || !r.Claimable() || r.NotBefore.After(now) || !d.here.takeLane(id, d.laneCount()) {
		return err
	}
	defer d.here.leave(id)

	free, err := d.holds.unblocked(ctx, writing, now, []ledger.Run{r}, d.o.Executor.Obstacles)
	if err != nil || len(free) == 0 {
		return err
	}
	do := d.o.Executor.Freeze()
	started, err := d.o.Ledger.Start(writing, d.startOf(id, r.Job, job))
	if err != nil {
		return err // the attempt may be recorded; it is an orphan when the engine's job ends
	}
	if s := started[0]; s.Err == nil {
		work, end := d.here.begin(writing, s.Attempt)
		defer end()
		d.recorder.execute(work, writing, s.Run, s.Attempt, do)
	}
	return nil
}

// Cancel stops a run after a request to cancel it, or after its job was cancelled in the engine.
func (d *Dispatcher) Cancel(ctx context.Context, id int64) {
	reason := "it was cancelled in River"
	if asked, err := d.o.Ledger.Runs.Cancelling(ctx); err != nil {
		d.log.Error("cancellations could not be read", "error", err)
	} else if why, found := asked[id]; found {
		reason = why
	}
	d.here.stop(id, &Stop{domain.OutcomeCancelled, reason})
}

// startOf returns the request for an attempt of a run, with the limits of its job and its agent.
func (d *Dispatcher) startOf(run int64, name string, job int64) ledger.Start {
	lanes := jobLanes(d.o.Executor.Policy(name))
	d.mu.Lock()
	defer d.mu.Unlock()
	return ledger.Start{Run: run, Job: job, AgentLanes: d.lanes.perAgent, JobLanes: lanes, Behind: lanes > 0 && d.o.Only == 0}
}

// begin registers an attempt, so that it can be stopped until end is called. The attempt's context
// does not end with the context of Run.
func (a *attempts) begin(writing context.Context, attempt ledger.Attempt) (work context.Context, end func()) {
	work, cancel := context.WithCancelCause(writing)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancels[attempt.Run] = cancel
	if a.stopping != nil {
		cancel(a.stopping)
	}
	return work, func() { cancel(nil) }
}

// laneCount returns how many runs may run at once.
func (d *Dispatcher) laneCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes.runs
}

// takeLane reserves a lane of this process for a run. It returns false if no lane is free or an
// earlier attempt has not ended.
func (a *attempts) takeLane(id int64, lanes int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, on := a.at[id]
	if on || len(a.at) >= lanes || a.stopping != nil {
		return false
	}
	a.at[id] = struct{}{}
	return true
}

// forget drops attempts that have ended.
func (a *attempts) forget(ids ...int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		delete(a.cancels, id)
	}
}

// count returns the number of running attempts.
func (a *attempts) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.cancels)
}

// leave frees the lane of a run.
func (a *attempts) leave(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.at, id)
	delete(a.cancels, id)
}
