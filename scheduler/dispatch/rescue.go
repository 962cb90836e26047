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
func (d *Dispatcher) rescue(ctx context.Context) (failed error) {
	runs, err := d.o.Ledger.Nodes.Orphans(ctx)
	if err != nil {
		return err
	}

	for _, r := range runs {
		a := ledger.Attempt{Run: r.ID, Number: r.Attempt}
		err := d.interrupt(ctx, r, a, "the process that ran it ended", ledger.Result{})
		if errors.Is(err, ledger.ErrFenced) { // another node was first
			continue
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("run %d: %w", r.ID, err))
			continue
		}
		d.log.Warn("an attempt was cut off", "job", r.Job, "run", r.ID, "attempt", a.Number)
	}

	return failed
}

// rescueFirst rescues what is left at the start. A node tries until it can: its database may be away for a moment.
func (d *Dispatcher) rescueFirst(ctx, writing context.Context) error {
	for {
		err := d.rescue(writing)
		if err == nil || d.o.Ledger.Nodes.Membership() == nil || ctx.Err() != nil || d.leaseLost() != nil {
			return err
		}

		d.log.Error("what nodes that are gone have left could not be read; it is tried again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// giveBack ends attempts that nobody does: their start was committed, and the answer was lost with the connection.
func (d *Dispatcher) giveBack(ctx, writing context.Context) error {
	for len(d.unconfirmedStarts) > 0 {
		r, mine, err := d.startedHere(ctx, d.unconfirmedStarts[0])
		if err != nil {
			return err
		}
		if mine {
			err := d.interrupt(writing, r, ledger.Attempt{Run: r.ID, Number: r.Attempt}, "the answer to its start was lost", ledger.Result{})
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
func (d *Dispatcher) startedHere(ctx context.Context, id int64) (ledger.Run, bool, error) {
	d.mu.Lock()
	on := d.cancels[id] != nil
	d.mu.Unlock()
	r, err := d.o.Ledger.Runs.Get(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return r, false, nil
	}
	if err != nil || on || r.State != domain.StateRunning {
		return r, false, err
	}

	m := d.o.Ledger.Nodes.Membership()
	if m == nil {
		return r, true, nil
	}
	nodes, err := d.o.Ledger.Nodes.OfAttempts(ctx, id)
	return r, err == nil && nodes[r.Attempt] == m.Node().Name, err
}

// park ends an attempt that had to stop because the daemon does.
func (d *Dispatcher) park(ctx context.Context, run ledger.Run, a ledger.Attempt, stop *Stop, res ledger.Result) error {
	d.log.Info("a run is parked", "job", run.Job, "run", run.ID, "attempt", a.Number)
	return d.interrupt(ctx, run, a, stop.reason, res)
}

// interrupt leaves the run to its next attempt, unless it may have none.
func (d *Dispatcher) interrupt(ctx context.Context, run ledger.Run, a ledger.Attempt, reason string, res ledger.Result) error {
	why := GiveUp(d.o.Executor.Policy(run.Job), run.Interruptions)
	switch {
	case run.CancelReason != "": // asked for before the process ended
		res.Outcome, why = domain.OutcomeCancelled, run.CancelReason
	case why == "":
		return d.o.Ledger.Interrupt(ctx, a, reason, nil)
	default:
		res.Outcome, why = domain.OutcomeInterrupted, reason+why
	}

	res.Error = why
	res = d.o.Executor.OnFinalize(ctx, run, res)
	res.Tell = d.o.Executor.EndNotices(run, res)
	res.Pause = d.pauseRule(run, res)

	return d.o.Ledger.Interrupt(ctx, a, reason, &res)
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
