package agent

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"rouse/agent/checkout"
	"rouse/agent/checkout/runclone"
	"rouse/agent/model/playbook"
)

// Clones returns the store of the runs' private clones.
func (r *Runner) Clones() *runclone.Clones { return r.clones }

// makeClone clones the repository for the run if the task has a checkout, and sets the clone as the
// task's workdir.
func (t *attempt) makeClone(ctx context.Context, clones *runclone.Clones) error {
	o := t.Checkout()
	if o == nil {
		return nil
	}

	branch, err := playbook.Expand("checkout: branch", o.Branch, map[string]any{"Job": cmp.Or(t.Run.Job, t.GoverningJob().Name, t.Agent.Name), "Agent": t.Agent.Name, "Run": strconv.FormatInt(t.Run.ID, 10)})
	if err != nil {
		return err
	}
	clone, err := clones.Make(ctx, t.Run, checkout.Spec{Repo: o.Repo, Ref: o.Ref, Branch: branch, Agent: t.Agent.Name, Keep: o.Keep})
	if err != nil {
		return err
	}

	t.Clone = &clone
	if slices.Contains(t.Agent.PrivateFolders, t.Agent.Workdir) || slices.Contains(t.Agent.PrivateFolders, o.Repo) {
		t.Agent.PrivateFolders = append(slices.Clone(t.Agent.PrivateFolders), clone.Dir)
	}
	t.Agent.Workdir, t.Agent.HostFolder = clone.Dir, ""
	return nil
}
