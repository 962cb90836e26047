package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"rouse/agent"
	"rouse/agent/model/replay"
	agentplan "rouse/agent/plan"
	"rouse/agent/undo"
	"rouse/agentdb"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
	"rouse/scheduler/dispatch"
	"rouse/watcher"
)

// Undo implements web.Backend.
func (d *Daemon) Undo(ctx context.Context, run ledger.Run, ask api.UndoRequest, progress func(done, of int64)) (api.Undo, error) {
	done, err := d.runner.Undo(ctx, run, undo.Options{By: agentdb.By{Actor: "user"}, Reason: "user", Only: ask.Only, Force: ask.Force, DryRun: ask.DryRun, Disown: true, Progress: progress})
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

// Cancelled implements web.Backend: no attempt is left that could undo what the run wrote.
func (d *Daemon) Cancelled(ctx context.Context, run ledger.Run) {
	res := d.runner.OnFinalize(ctx, run, ledger.Result{Outcome: run.Outcome})
	if res.Error != "" {
		d.log.Info("a run was cancelled while it waited", "job", run.Job, "run", run.ID, "database", res.Error)
	}
}

// Recording implements web.Backend. History can be read whatever the configuration is.
func (d *Daemon) Recording(ctx context.Context, run int64) ([]byte, error) {
	rec, err := d.recording(ctx, run)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = replay.Write(&out, rec)
	return out.Bytes(), err
}

func (d *Daemon) recording(ctx context.Context, run int64) (replay.Recording, error) {
	rec, err := d.runner.ExportRecording(ctx, run)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		err = &api.Error{Status: http.StatusConflict, Message: err.Error()}
	}
	return rec, err
}

// RunOnly executes one run without a daemon. It serves the socket of the home meanwhile.
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
	if !d.shared() && d.Current().Usable() == nil {
		if err := d.ledger.SetFollowers(ctx, d.Current().Plan.Followers); err != nil {
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

	// Ctrl-C cancels the run instead of leaving it for a later start.
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
	return watcher.ApplyAfterActions(running, d.watching(), d.ownWatches(d.Current().Plan)) // no daemon does it
}

// watching returns the options for handling watched files.
func (d *Daemon) watching() watcher.Options {
	return watcher.Options{
		Ledger: d.ledger, Logger: d.log, BreakerNotices: d.runner.LoopNotices, ReturnNotices: d.runner.ReturnNotices,
		Expand: d.expandDestination, Elsewhere: d.watchedElsewhere,
	}
}

// answerBeside serves the socket of the home until stop is called. The run does not depend on it.
func (d *Daemon) answerBeside(ctx context.Context) (stop func()) {
	server, err := d.openServer(ctx)
	if err != nil {
		d.log.Error("no other command can look at this run while it is on", "error", err)
		return func() {}
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.run() }) // the run goes on without it
	return func() {
		server.linger()
		if err := server.stop(ctx); err != nil {
			d.log.Error("another command was cut off", "error", err)
		}
		serving.Wait()
	}
}

// Replay implements web.Backend: nothing of it is seen by the home.
func (d *Daemon) Replay(ctx context.Context, run int64) (api.Replay, error) {
	now := d.Current()
	if err := now.Usable(); err != nil {
		return api.Replay{}, err
	}

	rec, err := d.recording(ctx, run)
	if err != nil {
		return api.Replay{}, err
	}
	out, err := PlayRecording(ctx, now.Plan, rec)
	if err != nil && ctx.Err() == nil { // of the recording, or of what is configured now
		err = &api.Error{Status: http.StatusConflict, Message: err.Error()}
	}
	return out, err
}

// PlayRecording plays a recording as a plan has its job now, without any effect.
func PlayRecording(ctx context.Context, p *plan.Plan, rec replay.Recording) (api.Replay, error) {
	res, err := playOnce(ctx, p.Runner, rec)
	if err != nil {
		return api.Replay{}, err
	}

	out := api.Replay{
		Run: rec.Run.ID, Job: rec.Run.Job, Agent: rec.Run.Agent, Exchanges: len(rec.Exchanges), Calls: len(rec.Calls), Attempts: len(rec.Attempts),
		Same: res.Same(), Unknown: res.Unknown, Differences: []api.ReplayDifference{}, Recorded: api.ReplayEnding(res.Recorded), Now: api.ReplayEnding(res.Now),
	}
	for _, d := range res.Differences {
		out.Differences = append(out.Differences, api.ReplayDifference(d))
	}
	return out, nil
}

// playOnce plays a recording in a home of its own, which is thrown away.
func playOnce(ctx context.Context, p agentplan.Plan, rec replay.Recording) (res agent.ReplayResult, err error) {
	dir, err := os.MkdirTemp("", "rouse-replay-")
	if err != nil {
		return res, fmt.Errorf("a folder to play in cannot be made: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	// A ledger and databases of its own, so that the home does not see the replay.
	l, err := ledger.Open(ctx, ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	databases, err := agentdb.NewPool(agentdb.PoolOptions{Dir: filepath.Join(dir, "agents")})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, databases.Close()) }()

	runner, err := agent.New(agent.Options{Ledger: l, Databases: databases, Manifests: filepath.Join(dir, "manifests"), Scratch: filepath.Join(dir, "commands"), Before: filepath.Join(dir, "before")}) //nolint:contextcheck // its folder is new: there is nothing to clean up
	if err != nil {
		return res, err
	}

	runner.Set(p)
	return runner.Replay(ctx, rec)
}
