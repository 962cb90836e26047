package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// rescue ends the attempts whose process is gone: at the start those of the one before, for the home's lock says that
// nobody else can be working on them; and at any time those of nodes that have lost their lease.
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

// rescueFirst rescues what is left at the start. A node tries until it can: its database may be away for a moment.
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

// giveBack ends attempts that nobody does: their start was committed, and the answer was lost with the connection.
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

// startedHere reports whether the ledger says that a run is on here, though it is not.
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

// park ends an attempt that had to stop because the daemon does.
func (e *recorder) park(ctx context.Context, run ledger.Run, a ledger.Attempt, stop *Stop, res ledger.Result) error {
	e.log.Info("a run is parked", "job", run.Job, "run", run.ID, "attempt", a.Number)
	return e.interrupt(ctx, run, a, stop.reason, res)
}

// interrupt leaves the run to its next attempt, unless it may have none.
func (e *recorder) interrupt(ctx context.Context, run ledger.Run, a ledger.Attempt, reason string, res ledger.Result) error {
	why := GiveUp(e.o.Executor.Policy(run.Job), run.Interruptions)
	switch {
	case run.CancelReason != "": // asked for before the process ended
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

// GiveUp says why a run that was cut off has no further attempt, "" when it has one.
func GiveUp(p Policy, interruptions int) string {
	switch {
	case !p.Resume:
		return "; its job says resume: false"
	case interruptions >= maxInterrupted:
		return fmt.Sprintf(", as %d attempts before it", interruptions)
	}
	return ""
}
