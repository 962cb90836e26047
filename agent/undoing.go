package agent

import (
	"context"

	"rouse/agent/checkout/runclone"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/undo"
	"rouse/agentdb/pool"
	"rouse/internal/ledger"
)

// Undoing reverts the changes of runs, using the current plan.
type Undoing struct {
	ledger    *ledger.Ledger
	plan      *plan.Current
	databases *pool.Pool
	locks     *tool.Locks
	clones    *runclone.Clones
	placement Placement
}

// Undo reverts the changes of a run to files and to its agent's database, using the current plan.
func (u *Undoing) Undo(ctx context.Context, run ledger.Run, o undo.Options) (undo.Result, error) {
	return u.undoer(run.Agent).Undo(ctx, run, o)
}

func (u *Undoing) undoer(agent string) undo.Undoer {
	p := u.plan.Load()
	a, known := p.Agents[agent]
	return undo.Undoer{
		Ledger: u.ledger, Databases: u.databases, Locks: u.locks, Clones: u.clones, Placement: u.placement,
		Boundary: p.Boundary, Specs: p.Specs, Workdir: a.Workdir, NoRows: known && !a.Database,
	}
}

// OnFinalize undoes the changes of a run that ends without an attempt if its job has
// undo_on_failure. It returns the redacted result.
func (u *Undoing) OnFinalize(ctx context.Context, run ledger.Run, res ledger.Result) ledger.Result {
	t, err := u.plan.Resolve(run)
	if err != nil {
		return res // the job is no longer configured
	}
	if t.Job.UndoOnFailure {
		res = u.undoer(run.Agent).OnFailure(ctx, run, res)
	}
	return cleanResult(res, t.Redactor())
}
