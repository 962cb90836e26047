package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// rescue ends the attempts of dead processes. At the start those are the attempts of the previous
// process: the home's lock guarantees that no other process works on them. Later they are the
// attempts of nodes that have lost their lease.
func (e *recorder) rescue(ctx context.Context) (failed error) {
	runs, err := e.o.Ledger.Nodes.Orphans(ctx)
	if err != nil {
		return err
	}

	for _, r := range runs {
		a := ledger.Attempt{Run: r.ID, Number: r.Attempt}
		err := e.interrupt(ctx, r, a, "the process that ran it ended", ledger.Result{})
		if errors.Is(err, ledger.ErrFenced) { // another node was first
			continue
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("run %d: %w", r.ID, err))
			continue
		}
		e.log.Warn("an attempt was cut off", "job", r.Job, "run", r.ID, "attempt", a.Number)
	}

	return failed
}

// rescueFirst rescues the runs of dead processes at the start. A node retries until it succeeds,
// because its database may be unreachable for a moment.
func (e *recorder) rescueFirst(ctx, writing context.Context) error {
	for {
		err := e.rescue(writing)
		if err == nil || e.o.Ledger.Nodes.Membership() == nil || ctx.Err() != nil || e.leaseLost() != nil {
			return err
		}

		e.log.Error("what nodes that are gone have left could not be read; it is tried again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// giveBack ends attempts that are not running: their start was committed, but the response was lost
// with the connection.
func (d *Dispatcher) giveBack(ctx, writing context.Context) error {
	for len(d.unconfirmedStarts) > 0 {
		r, mine, err := d.here.startedHere(ctx, d.unconfirmedStarts[0])
		if err != nil {
			return err
		}
		if mine {
			err := d.recorder.interrupt(writing, r, ledger.Attempt{Run: r.ID, Number: r.Attempt}, "the answer to its start was lost", ledger.Result{})
			if err != nil && !errors.Is(err, ledger.ErrFenced) {
				return err
			}
			d.log.Warn("an attempt was started, and is given back", "job", r.Job, "run", r.ID, "attempt", r.Attempt)
		}
		d.unconfirmedStarts = d.unconfirmedStarts[1:]
	}
	return nil
}

// startedHere reports whether a run is running on this node according to the ledger, although it is
// not.
func (a *attempts) startedHere(ctx context.Context, id int64) (ledger.Run, bool, error) {
	a.mu.Lock()
	on := a.cancels[id] != nil
	a.mu.Unlock()
	r, err := a.o.Ledger.Runs.Get(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return r, false, nil
	}
	if err != nil || on || r.State != domain.StateRunning {
		return r, false, err
	}

	m := a.o.Ledger.Nodes.Membership()
	if m == nil {
		return r, true, nil
	}
	nodes, err := a.o.Ledger.Nodes.OfAttempts(ctx, id)
	return r, err == nil && nodes[r.Attempt] == m.Node().Name, err
}

// park ends an attempt that has to stop because the daemon stops.
func (e *recorder) park(ctx context.Context, run ledger.Run, a ledger.Attempt, stop *Stop, res ledger.Result) error {
	e.log.Info("a run is parked", "job", run.Job, "run", run.ID, "attempt", a.Number)
	return e.interrupt(ctx, run, a, stop.reason, res)
}

// interrupt ends an attempt and leaves the run to its next one. If there is none, it ends the run.
func (e *recorder) interrupt(ctx context.Context, run ledger.Run, a ledger.Attempt, reason string, res ledger.Result) error {
	why := GiveUp(e.o.Executor.Policy(run.Job), run.Interruptions)
	switch {
	case run.CancelReason != "": // cancellation was requested before the process ended
		res.Outcome, why = domain.OutcomeCancelled, run.CancelReason
	case why == "":
		return e.o.Ledger.Interrupt(ctx, a, reason, nil)
	default:
		res.Outcome, why = domain.OutcomeInterrupted, reason+why
	}

	res.Error = why
	res = e.o.Executor.OnFinalize(ctx, run, res)
	res.Tell = e.o.Executor.EndNotices(run, res)
	res.Pause = e.pauseRule(run, res)

	return e.o.Ledger.Interrupt(ctx, a, reason, &res)
}

// GiveUp returns the reason why an interrupted run has no further attempt, or "" if it has one.
func GiveUp(p Policy, interruptions int) string {
	switch {
	case !p.Resume:
		return "; its job says resume: false"
	case interruptions >= maxInterrupted:
		return fmt.Sprintf(", as %d attempts before it", interruptions)
	}
	return ""
}
