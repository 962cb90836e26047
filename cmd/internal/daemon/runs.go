package daemon

import (
	"bytes"
	"context"
	"errors"
	"strconv"

	"rouse/agent"
	"rouse/agent/model/replay"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/scheduler/dispatch"
	"rouse/watcher"
)

// Undo implements web.Backend.
func (d *Daemon) Undo(ctx context.Context, run ledger.Run, ask api.UndoRequest, progress func(done, of int64)) (api.Undo, error) {
	done, err := d.runner.Undo(ctx, run, agent.UndoOptions{By: agentdb.By{Actor: "user"}, Reason: "user", Only: ask.Only, Force: ask.Force, DryRun: ask.DryRun, Disown: true, Progress: progress})
	if err != nil {
		return api.Undo{}, err
	}

	out := api.Undo{Run: strconv.FormatInt(run.ID, 10), Agent: run.Agent, Done: done.Done, CanUndo: done.CanUndo, Files: []api.UndoneFile{}, Checkout: done.Checkout, Database: done.Database, Left: done.Left}
	// A hash stands for a file that was there; the client needs to know no more than that.
	for _, f := range done.Files {
		out.Files = append(out.Files, api.UndoneFile{Path: f.Path, Type: string(f.Type), Before: f.BeforeHash != "", After: f.AfterHash != "", Why: f.Why})
	}
	return out, nil
}

// Cancelled implements web.Backend: a run that ends while it waits has no attempt that would
// undo what it wrote, where its job wants that.
func (d *Daemon) Cancelled(ctx context.Context, run ledger.Run) {
	res := d.runner.OnFinalize(ctx, run, ledger.Result{Outcome: run.Outcome})
	if res.Error != "" {
		d.log.Info("a run was cancelled while it waited", "job", run.Job, "run", run.ID, "database", res.Error)
	}
}

// Recording implements web.Backend. History can be read whatever the configuration is.
func (d *Daemon) Recording(ctx context.Context, run int64) ([]byte, error) {
	rec, err := d.runner.ExportRecording(ctx, run)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, err
	}
	if err != nil {
		return nil, &api.Error{Status: 409, Message: err.Error()}
	}

	var out bytes.Buffer
	err = replay.Write(&out, rec)
	return out.Bytes(), err
}

// RunOnly executes one run in this process, for a command without a daemon. Meanwhile it answers on the
// socket of the home, so that other commands can look, answer and cancel.
func (d *Daemon) RunOnly(ctx context.Context, id string) error {
	run, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return err
	}

	leave, err := d.joinToRun(ctx)
	if err != nil {
		return err
	}
	defer leave()

	// Where nodes share the ledger, the configuration of who leads counts.
	if !d.shared() && d.Current().usable() == nil {
		if err := d.ledger.SetFollowers(ctx, d.Current().plan.followers); err != nil {
			return err
		}
	}

	// A copy: the options stay those of a dispatcher for all runs.
	o := d.dispatcher
	o.Only = run
	dispatcher, err := dispatch.New(o)
	if err != nil {
		return err
	}

	// Ctrl-C cancels the run instead of parking it for a later start: its owner is here and
	// wants it gone.
	running := context.WithoutCancel(ctx)
	stop := context.AfterFunc(ctx, func() {
		if _, err := d.ledger.RequestCancel(running, run, "cancelled at the keyboard"); err != nil {
			d.log.Error("the run could not be cancelled", "run", run, "error", err)
		}
	})

	defer stop()
	defer d.answerBeside(running)()

	if err := dispatcher.Run(running); err != nil || d.Current().usable() != nil {
		return err
	}
	return watcher.ApplyAfterActions(running, d.watching(), d.ownWatches(d.Current().plan)) // no daemon does it
}

// watching returns the options for handling watched files.
func (d *Daemon) watching() watcher.Options {
	return watcher.Options{
		Ledger: d.ledger, Logger: d.log, BreakerNotices: d.runner.LoopNotices, ReturnNotices: d.runner.ReturnNotices,
		Expand: d.expandDestination, Elsewhere: d.watchedElsewhere,
	}
}

// answerBeside answers on the socket of the home until stop is called. Where that cannot be, the run
// goes on without.
func (d *Daemon) answerBeside(ctx context.Context) (stop func()) {
	server, err := d.openServer(ctx)
	if err != nil {
		d.log.Error("no other command can look at this run while it is on", "error", err)
		return func() {}
	}

	var group group
	group.run("http", server.run)
	return func() {
		server.linger()
		if err := server.stop(ctx); err != nil {
			d.log.Error("another command was cut off", "error", err)
		}
		group.wait("http")
	}
}
