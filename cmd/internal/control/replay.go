package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"rouse/agent"
	"rouse/agent/model/replay"
	agentplan "rouse/agent/plan"
	"rouse/agent/record"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
)

// Replay repeats a finished run with the current configuration of its job, and without effects.
func (x *Runs) Replay(ctx context.Context, run int64) (api.Replay, error) {
	now := x.Setup()
	if err := now.Usable(); err != nil {
		return api.Replay{}, err
	}

	rec, err := x.recording(ctx, run)
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
func playOnce(ctx context.Context, p agentplan.Plan, rec replay.Recording) (res record.Result, err error) {
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

	databases, err := pool.New(pool.Options{Dir: filepath.Join(dir, "agents")})
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
