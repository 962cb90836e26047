package dispatch

import (
	"context"
	"errors"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

const (
	// busyFor is when a run is brought again that found no free lane.
	busyFor = 50 * time.Millisecond
	// askAgain is when a run is brought again that another process keeps from starting.
	askAgain = time.Second
	// maxRest is the longest wait until a blocked run is looked at again.
	maxRest = 10 * time.Second
)

// Work does a run that an engine has brought to this process, and returns when the attempt is over. again is after which time the run is
// to be brought again, to this process or another one; 0: it is not. job is what brought it.
func (d *Dispatcher) Work(ctx context.Context, id, job int64) (again time.Duration, err error) {
	writing := context.WithoutCancel(ctx)
	r, err := d.o.Ledger.Run(writing, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return 0, nil
	}
	now := d.o.Now()
	if err != nil || !r.Claimable() || r.NotBefore.After(now) {
		return 0, err
	}
	if !d.takeLane(id) {
		return busyFor, nil
	}
	defer d.releaseLanes(id)

	// Who sent it has seen to that, unless it has been blocked since.
	if r.Blocked.Now() {
		pauses, err := d.o.Ledger.Pauses(writing, now)
		if _, paused := ledger.Paused(pauses, r.Job, r.Agent, now); err != nil || paused {
			return 0, err
		}
	}
	free, err := d.unblocked(ctx, writing, now, []ledger.Run{r}, d.o.Executor.Obstacles)
	if err != nil {
		return 0, err
	}
	if len(free) == 0 {
		return d.rest(writing, id, now)
	}

	do := d.o.Executor.Freeze()
	started, err := d.o.Ledger.Start(writing, d.startOf(id, r.Job, job))
	if err != nil {
		return 0, err // whether it has begun is not known: if so, that is found by its job, which has ended
	}
	switch s := started[0]; {
	case errors.Is(s.Err, ledger.ErrNoLane):
		return busyFor, nil
	case errors.Is(s.Err, ledger.ErrAgentAway):
		return askAgain, nil
	case s.Err != nil:
		return 0, nil
	default:
		work, end := d.begin(writing, s.Attempt)
		defer end()
		d.execute(work, writing, s.Run, s.Attempt, do)
		return 0, nil
	}
}

// rest is how long a run rests that is blocked; 0 for one that was ended.
func (d *Dispatcher) rest(ctx context.Context, id int64, now time.Time) (time.Duration, error) {
	r, err := d.o.Ledger.Run(ctx, id)
	if err != nil || !r.Blocked.Now() {
		return 0, err
	}
	return min(askAgain+now.Sub(r.Blocked.Since)/10, maxRest), nil
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
	return work, func() {
		cancel(nil)
		d.releaseLanes(a.Run)
		d.notify()
	}
}

// takeLane takes a lane of this process for a run; false: none is free, or an earlier attempt of it is not over.
func (d *Dispatcher) takeLane(id int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, on := d.at[id]
	if on || len(d.at) >= d.lanes.runs {
		return false
	}
	d.at[id] = struct{}{}
	return true
}
