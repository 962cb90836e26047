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

// Clones returns the private clones of runs.
func (r *Runner) Clones() *runclone.Clones { return r.clones }

// checkout returns the checkout of a run, or nil if it works in the agent's workdir, as a call by hand does.
func (t *task) checkout() *checkout.Options {
	if t.detail.Tool != "" {
		return nil
	}
	return cmp.Or(t.governingJob().Checkout, t.agent.Checkout)
}

// makeClone makes the clone of a run and sets it as the workdir of the task.
func (t *attempt) makeClone(ctx context.Context, clones *runclone.Clones) error {
	o := t.checkout()
	if o == nil {
		return nil
	}

	branch, err := playbook.Expand("checkout: branch", o.Branch, map[string]any{"Job": cmp.Or(t.run.Job, t.governingJob().Name, t.agent.Name), "Agent": t.agent.Name, "Run": strconv.FormatInt(t.run.ID, 10)})
	if err != nil {
		return err
	}
	clone, err := clones.Make(ctx, t.run, checkout.Spec{Repo: o.Repo, Ref: o.Ref, Branch: branch, Agent: t.agent.Name, Keep: o.Keep})
	if err != nil {
		return err
	}

	t.clone = &clone
	if slices.Contains(t.agent.PrivateFolders, t.agent.Workdir) || slices.Contains(t.agent.PrivateFolders, o.Repo) {
		t.agent.PrivateFolders = append(slices.Clone(t.agent.PrivateFolders), clone.Dir)
	}
	t.agent.Workdir, t.agent.HostFolder = clone.Dir, ""
	return nil
}
