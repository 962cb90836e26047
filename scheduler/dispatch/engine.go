package dispatch

import (
	"context"

	"rouse/agentdb/ledger"
)

// Engine has the runs done that got their lanes. The local one does them in this process; that of package river in those that share
// a ledger. Who asks to cancel a run says so to the ledger, which tells the process that does it.
type Engine interface {
	// Open begins to do runs with a dispatcher, until Close.
	Open(ctx context.Context, d *Dispatcher) error
	// Start has runs done. Of one that is not started after all, the lanes are free again.
	Start(ctx context.Context, runs []ledger.RunFor) error
	// Close takes no further runs, and returns when those that are on have ended.
	Close(ctx context.Context) error
}

// local does runs in this process.
type local struct{ d *Dispatcher }

// Open implements Engine.
func (local) Open(context.Context, *Dispatcher) error { return nil }

// Start implements Engine: all attempts are recorded in one commit.
func (e local) Start(writing context.Context, runs []ledger.RunFor) error {
	d := e.d
	starts := make([]ledger.Start, len(runs))
	for i, r := range runs {
		starts[i] = d.startOf(r.Run, r.Job, 0)
	}

	do := d.o.Executor.Freeze()
	started, err := d.o.Ledger.Start(writing, starts...)
	if err != nil {
		for _, r := range runs {
			d.releaseLanes(r.Run)
			d.unsure = append(d.unsure, r.Run)
		}
		return err
	}
	for i, s := range started {
		if s.Err != nil { // cancelled since it was read, or another process was first, or has its lanes or its agent
			d.releaseLanes(runs[i].Run)
			continue
		}
		work, end := d.begin(writing, s.Attempt)
		d.attempts.Go(func() {
			d.execute(work, writing, s.Run, s.Attempt, do)
			end()
			d.releaseLanes(s.Run.ID)
			d.notify()
		})
	}
	return nil
}

// Close implements Engine.
func (e local) Close(context.Context) error {
	e.d.attempts.Wait()
	return nil
}
