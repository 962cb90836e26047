package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rouse/agentdb/ledger"
)

// maxPage is how many runs are read from the ledger at once; the first read of a turn is
// as small as what can start, and minPage at least.
const (
	minPage = 16
	maxPage = 512
)

// turn starts what can be started and hears cancellations. next is when time alone makes
// more claimable.
func (d *Dispatcher) turn(ctx, writing context.Context) (over bool, next time.Time, err error) {
	if err := d.hearCancels(ctx); err != nil {
		return false, time.Time{}, err
	}
	now := time.Now()
	if d.o.Only != 0 {
		return d.turnOnly(ctx, writing, now)
	}
	if !now.Before(d.queue.reread()) {
		d.queue.forget(now)
	}
	if err := d.serve(ctx, writing, now); err != nil {
		d.queue.forget(now) // what was taken out of it may still be queued
		return false, time.Time{}, err
	}
	next, err = d.o.Ledger.NextDue(ctx, now)
	if again := d.queue.reread(); d.queue.stale && d.free() > 0 && again.After(now) && (next.IsZero() || again.Before(next)) {
		next = again
	}
	return false, next, err
}

// serve gives free lanes to the backlog, and reads on in the queue while lanes stay free.
func (d *Dispatcher) serve(ctx, writing context.Context, now time.Time) error {
	if err := d.startWaiting(ctx, writing, now); err != nil {
		return err
	}
	page := min(max(2*d.free(), minPage), maxPage)
	for d.free() > 0 && ctx.Err() == nil {
		runs, err := d.o.Ledger.Claimable(ctx, now, d.queue.seen, page)
		if err != nil {
			return err
		}
		for _, r := range runs {
			d.queue.seen = r.ID
			why := d.o.Hold(r)
			if d.noteHeld(r, why); why == "" {
				d.queue.add(r)
			}
		}
		d.queue.read += len(runs)
		if err := d.startWaiting(ctx, writing, now); err != nil {
			return err
		}
		if len(runs) < page {
			break
		}
		page = maxPage
	}
	return nil
}

// startWaiting starts the oldest runs of the backlog that find their lanes.
func (d *Dispatcher) startWaiting(ctx, writing context.Context, now time.Time) error {
	for ctx.Err() == nil && d.free() > 0 {
		starting, late := d.choose(now)
		for _, w := range late {
			waited := now.Sub(w.since).Round(time.Second)
			if err := d.finishUnstarted(writing, w.id, ledger.Result{Outcome: ledger.OutcomeSkipped,
				Error: fmt.Sprintf("waited %s in the queue, longer than its start_deadline", waited)}); err != nil {
				d.giveBack(starting)
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

// choose takes the runs out of the backlog that have waited longest and whose lanes are
// free, with their lanes, and those that have waited longer than they may.
func (d *Dispatcher) choose(now time.Time) (starting []int64, late []waiting) {
	type head struct {
		k  line
		p  Policy
		id int64
	}
	var heads []head
	overdue := func(p Policy, w waiting) bool {
		return p.StartDeadline > 0 && !w.since.IsZero() && now.Sub(w.since) > p.StartDeadline
	}
	next := func(k line, p Policy) (head, bool) {
		for len(d.queue.lines[k]) > 0 {
			if w := d.queue.lines[k][0]; !overdue(p, w) {
				return head{k, p, w.id}, true
			}
			late = append(late, d.queue.pop(k))
		}
		return head{}, false
	}
	for k := range d.queue.lines {
		if h, ok := next(k, d.o.Policy(k.job)); ok {
			heads = append(heads, h)
		}
	}
	slices.SortFunc(heads, func(a, b head) int { return cmp.Compare(a.id, b.id) })
	for len(heads) > 0 && d.free() > 0 {
		h := heads[0]
		heads = heads[1:]
		if !d.take(h.id, h.k, h.p) {
			continue // its lanes stay full until something ends
		}
		starting = append(starting, d.queue.pop(h.k).id)
		if h, ok := next(h.k, h.p); ok {
			i, _ := slices.BinarySearchFunc(heads, h.id, func(e head, id int64) int { return cmp.Compare(e.id, id) })
			heads = slices.Insert(heads, i, h)
		}
	}
	return starting, late
}

// turnOnly serves one run, whatever else is queued.
func (d *Dispatcher) turnOnly(ctx, writing context.Context, now time.Time) (over bool, next time.Time, err error) {
	r, err := d.o.Ledger.Run(ctx, d.o.Only)
	if err != nil {
		return false, time.Time{}, err
	}
	switch {
	case r.State == ledger.StateFinished:
		return true, time.Time{}, nil
	case r.State == ledger.StateRunning:
		return false, time.Time{}, nil
	case r.NotBefore.After(now):
		return false, r.NotBefore, nil
	}
	if why := d.o.Hold(r); why != "" {
		return false, time.Time{}, d.finishUnstarted(writing, r.ID, ledger.Result{Outcome: ledger.OutcomeError, Error: why})
	}
	d.queue.forget(now)
	d.queue.add(r)
	return false, time.Time{}, d.startWaiting(ctx, writing, now)
}

// start gives runs that have their lanes an attempt, all in one commit, and executes them.
func (d *Dispatcher) start(writing context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	started, err := d.o.Ledger.StartAttempts(writing, ids...)
	if err != nil {
		d.giveBack(ids)
		return err
	}
	for i, id := range ids {
		if started[i].Err != nil { // cancelled meanwhile
			d.giveBack(ids[i : i+1])
			continue
		}
		work, cancel := context.WithCancelCause(writing)
		d.mu.Lock()
		d.running[id].cancel = cancel
		d.mu.Unlock()
		d.all.Go(func() { d.execute(work, writing, started[i].Run, started[i].Attempt, cancel) })
	}
	return nil
}

// finishUnstarted ends a run that never got to work. It takes an attempt for a moment, so
// that the end is fenced like any other.
func (d *Dispatcher) finishUnstarted(writing context.Context, id int64, res ledger.Result) error {
	run, a, err := d.o.Ledger.StartAttempt(writing, id)
	if errors.Is(err, ledger.ErrNotClaimable) {
		return nil
	}
	if err != nil {
		return err
	}
	res.Notices = d.o.Notices(run, res)
	return d.o.Ledger.Finish(writing, a, res)
}

// noteHeld logs why a run stays queued, once for each reason.
func (d *Dispatcher) noteHeld(r ledger.Run, why string) {
	if d.held[r.ID] == why {
		return
	}
	if why == "" {
		delete(d.held, r.ID)
		return
	}
	d.held[r.ID] = why
	d.log.Warn("a run stays queued", "job", r.Job, "run", r.ID, "reason", why)
}
