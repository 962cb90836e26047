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
)

// Undo implements web.Runs.
func (d *Daemon) Undo(ctx context.Context, run ledger.Run, ask api.UndoRequest, progress func(done, of int64)) (api.Undo, error) {
	done, err := d.runner.Undo(ctx, run, agent.UndoOptions{By: agentdb.By{Actor: "user"}, Reason: "user", Only: ask.Only, Force: ask.Force, DryRun: ask.DryRun, Progress: progress})
	if err != nil {
		return api.Undo{}, err
	}

	out := api.Undo{Run: strconv.FormatInt(run.ID, 10), Agent: run.Agent, Done: done.Done, CanUndo: done.CanUndo, Files: []api.UndoneFile{}, Database: done.Database, Left: done.Left}
	for _, f := range done.Files {
		out.Files = append(out.Files, api.UndoneFile{Path: f.Path, Type: string(f.Type), Before: f.BeforeHash != "", After: f.AfterHash != "", Why: f.Why})
	}
	return out, nil
}

// Cancelled implements web.Runs: a run that ends while it waits has no attempt that would
// undo what it wrote, where its job wants that.
func (d *Daemon) Cancelled(ctx context.Context, run ledger.Run) {
	res := d.runner.OnFinalize(ctx, run, ledger.Result{Outcome: run.Outcome})
	if res.Error != "" {
		d.log.Info("a run was cancelled while it waited", "job", run.Job, "run", run.ID, "database", res.Error)
	}
}

// Recording implements web.Runs. History can be read whatever the configuration is.
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
