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

// Replay repeats a finished run with the current configuration of its job and without effects.
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
	if err != nil && ctx.Err() == nil { // caused by the recording or the current configuration
		err = &api.Error{Status: http.StatusConflict, Message: err.Error()}
	}
	return out, err
}

// PlayRecording replays a recording with the configuration of a plan and without effects.
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

// playOnce replays a recording in a temporary home.
func playOnce(ctx context.Context, p agentplan.Plan, rec replay.Recording) (res record.Result, err error) {
	dir, err := os.MkdirTemp("", "rouse-replay-")
	if err != nil {
		return res, fmt.Errorf("a folder to play in cannot be made: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	// Use a separate ledger and databases, so that the replay does not affect the home.
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

	runner, err := agent.New(agent.Options{Ledger: l, Databases: databases, Manifests: filepath.Join(dir, "manifests"), Scratch: filepath.Join(dir, "commands"), Before: filepath.Join(dir, "before")}) //nolint:contextcheck // its folder is new, so it has no cleanup to do
	if err != nil {
		return res, err
	}

	runner.Set(p)
	return runner.Replay(ctx, rec)
}
