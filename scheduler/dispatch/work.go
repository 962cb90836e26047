package dispatch

import (
	"context"
	"errors"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Work does a run that an engine has brought to this process, and returns when the attempt is over. job is what brought it. A run that
// cannot start here just now goes back to the process that leads.
func (d *Dispatcher) Work(ctx context.Context, id, job int64) error {
	writing := context.WithoutCancel(ctx)
	r, err := d.o.Ledger.Run(writing, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil
	}
	now := d.o.Now()
	if err != nil || !r.Claimable() || r.NotBefore.After(now) || !d.takeLane(id) {
		return err
	}
	defer d.leave(id)

	free, err := d.unblocked(ctx, writing, now, []ledger.Run{r}, d.o.Executor.Obstacles)
	if err != nil || len(free) == 0 {
		return err
	}
	do := d.o.Executor.Freeze()
	started, err := d.o.Ledger.Start(writing, d.startOf(id, r.Job, job))
	if err != nil {
		return err // whether it has begun is not known: if so, its job says that it has ended
	}
	if s := started[0]; s.Err == nil {
		work, end := d.begin(writing, s.Attempt)
		defer end()
		d.execute(work, writing, s.Run, s.Attempt, do)
	}
	return nil
}

// Cancel stops a run that somebody asked to cancel, or who looks after the engine.
func (d *Dispatcher) Cancel(ctx context.Context, id int64) {
	reason := "it was cancelled in River"
	if asked, err := d.o.Ledger.Cancelling(ctx); err != nil {
		d.log.Error("cancellations could not be read", "error", err)
	} else if why, found := asked[id]; found {
		reason = why
	}
	d.stop(id, &Stop{domain.OutcomeCancelled, reason})
}

// startOf asks for an attempt of a run of a job, within the lanes that it has.
func (d *Dispatcher) startOf(run int64, name string, job int64) ledger.Start {
	lanes := jobLanes(d.o.Executor.Policy(name))
	d.mu.Lock()
	defer d.mu.Unlock()
	return ledger.Start{Run: run, Job: job, AgentLanes: d.lanes.perAgent, JobLanes: lanes, Behind: lanes > 0 && d.o.Only == 0}
}

// begin has an attempt be one that can be stopped, until end. Its context outlives that of Run, until drain ends the attempt.
func (d *Dispatcher) begin(writing context.Context, a ledger.Attempt) (work context.Context, end func()) {
	work, cancel := context.WithCancelCause(writing)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancels[a.Run] = cancel
	if d.stopping != nil {
		cancel(d.stopping)
	}
	return work, func() { cancel(nil) }
}

// takeLane takes a lane of this process for a run; false: none is free, or an earlier attempt of it is not over.
func (d *Dispatcher) takeLane(id int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, on := d.at[id]
	if on || len(d.at) >= d.lanes.runs || d.stopping != nil {
		return false
	}
	d.at[id] = struct{}{}
	return true
}

// leave gives the lane back that takeLane took.
func (d *Dispatcher) leave(id int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.at, id)
	delete(d.cancels, id)
}
