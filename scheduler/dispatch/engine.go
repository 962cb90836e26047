package dispatch

import (
	"context"

	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
)

// Engine executes the runs that the dispatcher starts: in this process, or on the nodes of a shared
// ledger (package river). Requests to cancel a run go through the ledger.
type Engine interface {
	// Open starts the workers, which call d.Work. They run until Close.
	Open(ctx context.Context, d *Dispatcher) error
	// Start executes runs, or sends them to the nodes that execute them.
	Start(ctx context.Context, runs []node.RunFor) error
	// Close accepts no more runs and returns when the running ones have ended.
	Close(ctx context.Context) error
}

// local executes runs in this process.
type local struct{ d *Dispatcher }

// Open implements Engine.
func (local) Open(context.Context, *Dispatcher) error { return nil }

// Start implements Engine. It records all attempts in one commit.
func (e local) Start(writing context.Context, runs []node.RunFor) error {
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
			d.unconfirmedStarts = append(d.unconfirmedStarts, r.Run)
		}
		return err
	}
	for i, s := range started {
		// The run was cancelled after it was read, or another process has the run, its lanes or its
		// agent.
		if s.Err != nil {
			d.releaseLanes(runs[i].Run)
			continue
		}
		work, end := d.here.begin(writing, s.Attempt)
		d.here.group.Go(func() {
			d.recorder.execute(work, writing, s.Run, s.Attempt, do)
			end()
			d.releaseLanes(s.Run.ID)
			d.notify()
		})
	}
	return nil
}

// Close implements Engine.
func (e local) Close(context.Context) error {
	e.d.here.group.Wait()
	return nil
}
