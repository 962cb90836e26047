package programs

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent/plan"
	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/gitlayout"
	"rouse/internal/text"
)

const maxUntrusted = 3

// TooWeak returns why this machine cannot start programs of a task's runs, with the remedy. It
// returns "" if it can.
func (p *Hosts) TooWeak(ctx context.Context, t *plan.Task) string {
	uses := t.ProgramUses()
	refused := uses.All()
	if len(refused) == 0 {
		return ""
	}
	box, err := p.Sandbox("")
	if err != nil {
		return fmt.Sprintf("%s cannot be started: %v", strings.Join(refused, " and "), err)
	}

	tier, lacks := box.Tier(context.WithoutCancel(ctx))
	if tier == "" { // the tier is not known yet
		return ""
	}
	least := t.MinTier()
	need, when := cmp.Or(sandbox.Tier(least), sandbox.TierLandlock), ""
	if tier != sandbox.TierNone && tier.AtLeast(need) {
		if least != "" || tier == sandbox.TierNamespaces || len(uses.Labelled) == 0 || len(t.Agent.Untrusted) == 0 {
			return ""
		}
		refused, need = uses.Labelled, sandbox.TierNamespaces
		when = fmt.Sprintf(" once a run has met untrusted content (%s)", text.List(t.Agent.Untrusted, maxUntrusted))
	}

	asked, remedy := "", fmt.Sprintf("; or accept tier %s with min_tier: %[1]s", tier)
	if least != "" {
		asked = " (min_tier)"
	}
	switch {
	case tier == sandbox.TierNone:
		remedy = "; or run them without a sandbox: sandbox: off, with a reason"
	case t.Agent.Mode == plan.ModeIsolated && !tier.AtLeast(sandbox.TierLandlock):
		remedy = ""
	}
	return fmt.Sprintf("the sandbox of this machine is too weak for %s%s: tier %s is needed%s, and it has tier %s; %s%s",
		strings.Join(refused, " and "), when, need, asked, tier, strings.Join(lacks, "; "), remedy)
}

// RepositoryFlaw returns why changes of a git repository will fail in the runs of a task, with the
// remedy. It returns "" if they will not fail.
func (p *Hosts) RepositoryFlaw(ctx context.Context, t *plan.Task) string {
	if t.Agent.Unconfined != "" || t.Agent.Mode == plan.ModeIsolated || t.Checkout() != nil {
		return ""
	}
	who := ""
	switch {
	case t.Executes():
		who = "its executor"
	case t.CanCall(tool.RequiresCommands) && slices.ContainsFunc(t.Agent.Commands, func(g shell.Grant) bool { return filepath.Base(g.Argv[0]) == "git" }):
		who = "a granted git"
	default:
		return ""
	}

	for _, folder := range append([]string{t.Agent.Workdir}, t.Agent.Write...) {
		repository := repositoryIn(folder)
		if repository == "" {
			continue
		}
		flaw := fmt.Sprintf("%s reads the git repository %s, and cannot change it: git add, commit, checkout and stash fail", who, text.Visible(repository))
		if box, err := p.Sandbox(""); err == nil {
			if tier, _ := box.Tier(context.WithoutCancel(ctx)); tier == sandbox.TierLandlock && shell.BesideOnly {
				flaw += "; " + shell.NothingBeside(folder, repository)
			}
		}
		return flaw + "; " + shell.UseCheckout(repository)
	}
	return ""
}

// repositoryIn returns a folder with a git repository: the folder itself or one in it. It returns
// "" if there is no repository.
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

// Flaws returns the texts that are not empty.
func Flaws(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}
