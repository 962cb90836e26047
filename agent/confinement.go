package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/host"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
	"rouse/internal/gitlayout"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

const maxUntrusted = 3

// programUses lists, in words, the ways in which the runs of a task can start confined programs.
type programUses struct {
	labelled []string // they need tier A once the run holds untrusted content, unless min_tier is set
	others   []string
}

func (u programUses) all() []string { return slices.Concat(u.labelled, u.others) }

func (t *task) programUses() (out programUses) {
	if t.agent.Unconfined != "" {
		return out
	}

	if t.executes() {
		out.labelled = append(out.labelled, "its executor")
	} else {
		if t.canCall(tool.RequiresCommands) {
			out.labelled = append(out.labelled, "its commands")
		}
		if t.canCall(tool.RequiresRepository) {
			out.labelled = append(out.labelled, "its git tools")
		}
		for _, s := range t.agent.Servers {
			if len(s.Argv) > 0 && t.canCallServer(s.Name) {
				out.labelled = append(out.labelled, "the MCP server "+s.Name)
			}
		}
	}
	if slices.ContainsFunc(t.job.Expect, func(e Expectation) bool { return len(e.Command) > 0 }) {
		out.labelled = append(out.labelled, "the command that it expects (expect)")
	}
	// Conditions are checked before the run can have read untrusted content.
	if slices.ContainsFunc(t.job.When, func(c Condition) bool { return len(c.Command) > 0 && c.Unconfined == "" }) {
		out.others = append(out.others, "the command of its condition (when)")
	}
	return out
}

// canCall reports whether a run of the task can call a tool with a requirement.
func (t *task) canCall(with tool.Requirement) bool {
	called := t.calledTools()
	return slices.ContainsFunc(t.plan.specs, func(s tool.Spec) bool {
		switch {
		case s.Requires != with || !t.given(s) || !tool.IsAllowed(t.agent.Allow, t.agent.Deny, s.Name):
			return false
		case t.job.Playbook != nil:
			return slices.Contains(called, s.Name)
		case t.job.Skill != nil:
			return with == tool.RequiresCommands && host.UsesCommands(t.job.Skill.Manifest) || len(t.settings.Tools) > 0 && tool.IsAllowed(t.settings.Tools, nil, s.Name)
		}
		return true
	})
}

// canCallServer reports whether a run of the task can call a tool of an MCP server.
func (t *task) canCallServer(name string) bool {
	if t.job.Playbook == nil {
		return t.usesServers()
	}
	return slices.ContainsFunc(t.calledTools(), func(called string) bool {
		server, _, ok := mcp.SplitName(called)
		return ok && server == name
	})
}

// tooWeak returns why this machine cannot start programs of a task's runs, and the remedy. It returns "" if it can.
func (r *Runner) tooWeak(ctx context.Context, t *task) string {
	uses := t.programUses()
	refused := uses.all()
	if len(refused) == 0 {
		return ""
	}
	box, err := r.programs.sandboxFor("")
	if err != nil {
		return fmt.Sprintf("%s cannot be started: %v", strings.Join(refused, " and "), err)
	}

	tier, lacks := box.Tier(context.WithoutCancel(ctx))
	if tier == "" { // it is not known yet
		return ""
	}
	least := t.minTier()
	need, when := cmp.Or(sandbox.Tier(least), sandbox.TierB), ""
	if tier != sandbox.TierD && tier.AtLeast(need) {
		if least != "" || tier == sandbox.TierA || len(uses.labelled) == 0 || len(t.agent.Untrusted) == 0 {
			return ""
		}
		refused, need = uses.labelled, sandbox.TierA
		when = fmt.Sprintf(" once a run has met untrusted content (%s)", text.List(t.agent.Untrusted, maxUntrusted))
	}

	asked, remedy := "", fmt.Sprintf("; or accept tier %s with min_tier: %[1]s", tier)
	if least != "" {
		asked = " (min_tier)"
	}
	switch {
	case tier == sandbox.TierD:
		remedy = "; or run them without a sandbox: sandbox: off, with a reason"
	case t.agent.Mode == ModeIsolated && !tier.AtLeast(sandbox.TierB):
		remedy = ""
	}
	return fmt.Sprintf("the sandbox of this machine is too weak for %s%s: tier %s is needed%s, and it has tier %s; %s%s",
		strings.Join(refused, " and "), when, need, asked, tier, strings.Join(lacks, "; "), remedy)
}

// blocksWeak reports whether runs of the task wait for a stronger sandbox because min_tier requires one.
func (t *task) blocksWeak() bool {
	return t.minTier() != "" && t.minTier() != string(sandbox.TierD)
}

// confinementObstacles returns an obstacle if min_tier requires a stronger sandbox than this machine has.
func (r *Runner) confinementObstacles(ctx context.Context, t *task) []ledger.Obstacle {
	uses := t.programUses().all()
	if !t.blocksWeak() || len(uses) == 0 {
		return nil
	}

	source := fmt.Sprintf("confinement/%s/%s", t.minTier(), strings.Join(uses, ","))
	return obstacle(obstacleConfinement, source, r.lookFor(ctx, source, func() string { return r.tooWeak(ctx, t) }), t.agent.Where)
}

// ProgramFlaws returns why programs of a job will be refused. It leaves out runs that wait for a
// stronger sandbox, because these have an obstacle.
func (r *Runner) ProgramFlaws(ctx context.Context, job string) []string {
	t, err := r.task(ledger.Run{Job: job})
	if err != nil {
		return nil
	}
	weak := ""
	if !t.blocksWeak() {
		weak = r.tooWeak(ctx, t)
	}
	return given(weak, r.repositoryFlaw(ctx, t))
}

func given(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

// RefusedPrograms returns, by job, why programs of a plan will be refused on this machine. It may
// start a program to probe the machine.
func RefusedPrograms(ctx context.Context, p Plan) (map[string][]string, error) {
	r, err := forPlan(p)
	if err != nil {
		return nil, err
	}

	out := map[string][]string{}
	for job := range maps.Keys(p.Jobs) {
		t, err := r.task(ledger.Run{Job: job})
		if err != nil {
			continue // the configuration check reports it
		}
		if flaws := given(r.tooWeak(ctx, t), r.repositoryFlaw(ctx, t)); len(flaws) > 0 {
			out[job] = flaws
		}
	}
	return out, nil
}

// repositoryFlaw returns why changes of a git repository will fail in the runs of a task, with the
// remedy, or "".
func (r *Runner) repositoryFlaw(ctx context.Context, t *task) string {
	if t.agent.Unconfined != "" || t.agent.Mode == ModeIsolated || t.checkout() != nil {
		return ""
	}
	who := ""
	switch {
	case t.executes():
		who = "its executor"
	case t.canCall(tool.RequiresCommands) && slices.ContainsFunc(t.agent.Commands, func(g shell.Grant) bool { return filepath.Base(g.Argv[0]) == "git" }):
		who = "a granted git"
	default:
		return ""
	}

	for _, folder := range append([]string{t.agent.Workdir}, t.agent.Write...) {
		repository := repositoryIn(folder)
		if repository == "" {
			continue
		}
		flaw := fmt.Sprintf("%s reads the git repository %s, and cannot change it: git add, commit, checkout and stash fail", who, text.Visible(repository))
		if box, err := r.programs.sandboxFor(""); err == nil {
			if tier, _ := box.Tier(context.WithoutCancel(ctx)); tier == sandbox.TierB && shell.BesideOnly {
				flaw += "; " + shell.NothingBeside(folder, repository)
			}
		}
		return flaw + "; " + shell.UseCheckout(repository)
	}
	return ""
}

// repositoryIn returns a folder with a git repository: the folder itself or one in it. It returns "" if there is none.
func repositoryIn(folder string) string {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if gitlayout.IsName(e.Name()) {
			return folder
		}
	}
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(folder, e.Name(), ".git")); err == nil {
			return filepath.Join(folder, e.Name())
		}
	}
	return ""
}
