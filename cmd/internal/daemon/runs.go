package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"rouse/agent"
	"rouse/agent/model/replay"
	"rouse/agentdb"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
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

// Pending implements web.Backend.
func (d *Daemon) Pending(ctx context.Context, run ledger.Run) (api.Pending, error) {
	now := d.ledger.Now()
	pauses, err := d.ledger.Pauses(ctx, now)
	if err != nil {
		return api.Pending{}, err
	}
	if run.State == domain.StateRunning {
		return api.Pending{Reason: d.waitsForModel(run.ID, now)}, nil
	}
	if p := d.pending(ctx, run, pauses, now, d.Zone()); p.Reason != "" || run.State != domain.StateQueued {
		return p, nil
	}

	// Only the running runs are in its way.
	on, err := d.ledger.Runs(ctx, ledger.RunFilter{State: domain.StateRunning, Limit: maxLogged + 1})
	if err != nil || len(on) == 0 {
		return api.Pending{}, err
	}
	var names []string
	for _, r := range on {
		job := "of no job"
		if r.Job != "" {
			job = "job " + r.Job
		}
		names = append(names, fmt.Sprintf("run %d (%s, agent %s)", r.ID, job, r.Agent))
	}
	return api.Pending{Reason: "waits for its turn, because other runs are on: " + text.List(names, maxLogged)}, nil
}

// slowAnswer is the time after which a model that has not begun to respond is reported.
const slowAnswer = time.Second

// waitsForModel names the model that a run waits for, if the model cannot be reached or has not begun to respond.
func (d *Daemon) waitsForModel(run int64, now time.Time) string {
	for _, s := range d.live.States(run, "") {
		switch {
		case s.Model == "":
		case s.Retry != "":
			return fmt.Sprintf("waits for its model %s and retries: %s; start its server, or choose another model under models: (rouse doctor checks them)", s.Model, s.Retry)
		case now.Sub(s.Since) >= slowAnswer:
			return fmt.Sprintf("waits for its model %s to respond", s.Model)
		}
	}
	return ""
}

// pending returns what a queued or waiting run waits for, as far as the run itself tells.
func (d *Daemon) pending(ctx context.Context, r ledger.Run, pauses []ledger.Pause, now time.Time, zone *time.Location) api.Pending {
	switch {
	case r.State == domain.StateWaiting && r.WaitingFor == domain.WaitRetry:
		// When it goes on comes first: what went wrong may be long, and be cut at its end.
		due := "now"
		if r.NotBefore.After(now) {
			due = api.LocalTime(r.NotBefore, zone)
		}
		reason := fmt.Sprintf("attempt %d failed; the next is due %s", r.Attempt, due)
		if r.Postponed() {
			reason = fmt.Sprintf("waits for its model, which was tried %s and is asked again %s", text.Plural(r.Postponements, "time"), due)
		}
		if r.Error != "" {
			reason += ": " + failureText(r.Error)
		}
		return api.Pending{Reason: reason}
	case r.WaitingFor == domain.WaitPause:
		return api.Pending{Reason: "its skill has paused it, until you have it go on: rouse inbox"}
	case r.WaitsForPerson():
		what := map[domain.Wait]string{domain.WaitInput: "your answer", domain.WaitApproval: "your approval"}[r.WaitingFor]
		return api.Pending{Reason: fmt.Sprintf("waits for %s until %s: rouse inbox", what, api.LocalTime(r.NotBefore, zone))}
	case r.State != domain.StateQueued:
		return api.Pending{}
	}

	if p, ok := ledger.Paused(pauses, r.Job, r.Agent, now); ok && r.Trigger != domain.TriggerManual {
		return api.Pending{Reason: "waits for the end of the pause: " + p.String()}
	}
	if why := ledger.ObstaclesText(d.runner.Obstacles(ctx, r)); why != "" {
		return api.Pending{Reason: "stays queued: " + why, Blocked: true}
	}
	// Obstacles of other kinds are asked for now; what is on record of them may be out of date while no daemon runs.
	if i := slices.IndexFunc(r.Blocked.By, func(o ledger.Obstacle) bool { return o.Kind == ledger.ObstacleOverlap }); i >= 0 && r.Blocked.Now() {
		return api.Pending{Reason: "stays queued: " + r.Blocked.By[i].Text, Blocked: true}
	}
	if why := d.absentNode(ctx, r, zone); why != "" {
		return api.Pending{Reason: why, Blocked: true}
	}
	if r.NotBefore.After(now) {
		return api.Pending{Reason: "starts " + api.LocalTime(r.NotBefore, zone)}
	}
	return api.Pending{}
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
func playOnce(ctx context.Context, p agent.Plan, rec replay.Recording) (res agent.ReplayResult, err error) {
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
