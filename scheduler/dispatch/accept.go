package dispatch

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Enqueue accepts runs as Ledger.Enqueue does. Those that would start next do so with the same commit.
func (d *Dispatcher) Enqueue(ctx context.Context, reqs ...ledger.Request) ([]ledger.Accepted, error) {
	reqs = slices.Clone(reqs)
	held := make([]reservation, len(reqs))
	for i := range reqs {
		held[i] = d.reserve(ctx, reqs[i])
		reqs[i].Start = held[i].start
	}

	accepted, err := d.o.Ledger.Enqueue(ctx, reqs...)
	d.settleAll(held, err, func(i int) *ledger.Started { return accepted[i].Begun }) //nolint:contextcheck // attempts outlive who asked
	return accepted, err
}

// RecordDue records instants as Ledger.RecordDue does. The runs of those that would start next do so with the same commit.
func (d *Dispatcher) RecordDue(ctx context.Context, now time.Time, due []ledger.Due, watermarks map[string]time.Time) ([]ledger.Occurrence, error) {
	if err := d.endMissedHolds(ctx, now); err != nil {
		return nil, err
	}

	due = slices.Clone(due)
	held := make([]reservation, len(due))
	for i, one := range due {
		if one.Decision == domain.DecisionRun && !one.Actual.After(now) {
			nominal := one.Nominal.UTC()
			held[i] = d.reserve(ctx, ledger.Request{Job: one.Job, Agent: one.Agent, Trigger: domain.TriggerSchedule, ScheduledAt: one.Nominal,
				Detail: ledger.Detail{Source: one.Source, Nominal: &nominal}})
			due[i].Start = held[i].start
		}
	}

	recorded, err := d.o.Ledger.RecordDue(ctx, now, due, watermarks)
	d.settleAll(held, err, func(i int) *ledger.Started { return recorded[i].Begun }) //nolint:contextcheck // attempts outlive who asked
	return recorded, err
}

// reservation is a lane of a run that is about to be accepted; the zero value: it has none.
type reservation struct {
	id    int64 // in place of the run's, which it gets when it is accepted
	start *ledger.Start
	do    ExecutorFunc // executes the attempt
}

// reserve takes the lane of a run that would start next. Whoever calls it settles what it gives.
func (d *Dispatcher) reserve(ctx context.Context, r ledger.Request) (none reservation) {
	now := d.o.Now()
	run := ledger.Run{Job: r.Job, Agent: r.Agent, Trigger: r.Trigger, State: domain.StateQueued, ScheduledAt: r.ScheduledAt, QueuedAt: now}
	if r.NotBefore.After(now) || !d.restsFor(run, now) {
		return none
	}

	// What is in its way is asked for without the lock.
	var err error
	if run.Detail, err = json.Marshal(r.Detail); err != nil || len(d.o.Executor.Obstacles(ctx, run)) > 0 {
		return none
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.rests() || !d.isHere(run, now) {
		return none
	}
	id := d.lanes.Reserve(run, now, d.pauses)
	if id == 0 {
		return none
	}

	d.reserved++
	d.attempts.Add(1) // it is waited for, as the attempt that comes of it
	lanes := jobLanes(d.o.Executor.Policy(r.Job))
	return reservation{id, &ledger.Start{AgentLanes: d.lanes.perAgent, JobLanes: lanes, Behind: lanes > 0}, d.frozen()}
}

// restsFor reports whether a run could get its lane now.
func (d *Dispatcher) restsFor(r ledger.Run, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rests() && d.lanes.reservable(r, now, d.pauses)
}

// settleAll settles the reservations of a commit. err is the commit's, which may have been written all the same; begun is what began
// with it for each, nil where nothing did.
func (d *Dispatcher) settleAll(held []reservation, err error, begun func(i int) *ledger.Started) {
	for i, r := range held {
		switch {
		case r.id == 0:
		case err != nil:
			d.settle(r, nil, err)
		default:
			d.settle(r, begun(i), nil)
		}
	}
}

// settle executes the attempt that began with its commit, or frees the lane that was reserved for it.
func (d *Dispatcher) settle(r reservation, begun *ledger.Started, err error) {
	defer d.attempts.Done()

	d.mu.Lock()
	if begun != nil {
		d.lanes.settle(r.id, begun.Run.ID)
	}
	d.mu.Unlock()
	if begun != nil {
		d.launch(*begun, r.do)
	} else {
		d.releaseLanes(r.id)
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.lostStart = d.lostStart || err != nil
	if d.reserved--; d.reserved == 0 {
		clear(d.early)
	}
	if begun == nil {
		d.notify() // for what has come into the queue meanwhile and found no lane
	}
}

// rests reports whether nothing has happened since the loop has looked at all that is queued. It is called with the lock.
func (d *Dispatcher) rests() bool {
	select {
	case <-d.restsUntil:
		return false
	default:
		return d.restsUntil != nil
	}
}

// rest lets runs start with their commits until changed is closed, or the loop goes on; nil: none may.
func (d *Dispatcher) rest(until <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restsUntil = until
}
