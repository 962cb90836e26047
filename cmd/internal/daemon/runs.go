package daemon

import (
	"context"
	"strconv"
	"sync"

	"rouse/internal/ledger/claim"
	"rouse/scheduler/dispatch"
	"rouse/watcher"
)

// RunOnly executes one run without a daemon. It serves the socket of the home meanwhile.
func (d *Daemon) RunOnly(ctx context.Context, id string) error {
	run, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return err
	}

	leave, err := d.Nodes.JoinToRun(ctx)
	if err != nil {
		return err
	}
	defer leave()

	// If nodes share the ledger, the leader's configuration applies.
	if !d.Nodes.Shared() && d.Current().Usable() == nil {
		if err := d.ledger.SetSuccessors(ctx, d.Current().Plan.Followers); err != nil {
			return err
		}
	}

	// Copy, because d.dispatcher holds the options for all runs.
	o := d.dispatcher
	o.Only = run
	dispatcher, err := dispatch.New(o)
	if err != nil {
		return err
	}

	// Ctrl-C cancels the run. Otherwise a later start would continue it.
	running := context.WithoutCancel(ctx)
	stop := context.AfterFunc(ctx, func() {
		if _, err := d.ledger.RequestCancel(running, run, "cancelled at the keyboard"); err != nil {
			d.log.Error("the run could not be cancelled", "run", run, "error", err)
		}
	})

	defer stop()
	defer d.answerBeside(running)()

	if err := dispatcher.Run(running); err != nil || d.Current().Usable() != nil {
		return err
	}
	return watcher.ApplyAfterActions(running, d.watching(), d.Nodes.OwnWatches(d.Current().Plan)) // no daemon does it
}

// watching returns the options for handling watched files.
func (d *Daemon) watching() watcher.Options {
	return watcher.Options{
		Ledger: d.ledger, Logger: d.log, BreakerNotices: d.runner.Notices.LoopNotices, ReturnNotices: d.runner.Notices.ReturnNotices,
		Expand: func(ctx context.Context, template string, c claim.Status) (string, error) {
			return expandDestination(ctx, d.ledger, d.Current().Plan.Runner.Jobs, template, c)
		},
		Elsewhere: d.Nodes.WatchedElsewhere,
	}
}

// answerBeside serves the socket of the home until stop is called. If it fails, the run continues.
func (d *Daemon) answerBeside(ctx context.Context) (stop func()) {
	server, err := d.openServer(ctx)
	if err != nil {
		d.log.Error("no other command can look at this run while it is on", "error", err)
		return func() {}
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.run() }) // the run continues without it
	return func() {
		server.linger()
		if err := server.stop(ctx); err != nil {
			d.log.Error("another command was cut off", "error", err)
		}
		serving.Wait()
	}
}
