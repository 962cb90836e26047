package main

import (
	"context"
	"strconv"

	"rouse/agent"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/web"
)

// Undo implements web.Engine.
func (d *daemon) Undo(ctx context.Context, run ledger.Run, ask web.UndoAsk, progress func(done, of int64)) (web.Undo, error) {
	done, err := d.runner.Undo(ctx, run, agent.UndoSpec{By: agentdb.By{Actor: "user"}, Reason: "user", Only: ask.Only, Force: ask.Force, DryRun: ask.DryRun, Progress: progress})
	if err != nil {
		return web.Undo{}, err
	}
	out := web.Undo{Run: strconv.FormatInt(run.ID, 10), Agent: run.Agent, Done: done.Done, CanUndo: done.CanUndo, Files: []web.UndoneFile{}, Database: done.Database, Left: done.Left}
	for _, f := range done.Files {
		out.Files = append(out.Files, web.UndoneFile{Path: f.Path, Type: string(f.Type), Before: f.BeforeHash != "", After: f.AfterHash != "", Why: f.Why})
	}
	return out, nil
}

// Cancelled implements web.Engine: a run that ends while it waits has no attempt that would
// take back what it wrote, where its job wants that.
func (d *daemon) Cancelled(ctx context.Context, run ledger.Run) {
	res := d.runner.Closing(ctx, run, ledger.Result{Outcome: run.Outcome})
	if res.Error != "" {
		d.log.Info("a run was cancelled while it waited", "job", run.Job, "run", run.ID, "database", res.Error)
	}
}
