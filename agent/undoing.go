package agent

import (
	"context"

	"rouse/agent/undo"
	"rouse/internal/ledger"
)

// Undo reverts the changes of a run to files and to the database of its agent, by the current plan.
func (r *Runner) Undo(ctx context.Context, run ledger.Run, o undo.Options) (undo.Result, error) {
	return r.undoer(run.Agent).Undo(ctx, run, o)
}

func (r *Runner) undoer(agent string) undo.Undoer {
	p := r.Plan.Load()
	a, known := p.Agents[agent]
	return undo.Undoer{
		Ledger: r.ledger, Databases: r.databases, Locks: r.fileLocks, Clones: r.clones, Placement: r.placement,
		Boundary: p.Boundary, Specs: p.Specs, Workdir: a.Workdir, NoRows: known && !a.Database,
	}
}

// OnFinalize undoes the changes of a run that ends without an attempt, if its job has undo_on_failure.
func (r *Runner) OnFinalize(ctx context.Context, run ledger.Run, res ledger.Result) ledger.Result {
	t, err := r.Plan.Resolve(run)
	if err != nil {
		return res // the job is gone, and its setting with it
	}
	if t.Job.UndoOnFailure {
		res = r.undoer(run.Agent).OnFailure(ctx, run, res)
	}
	return cleanResult(res, t.Redactor())
}
