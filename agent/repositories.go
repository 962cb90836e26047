package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/gitlayout"
	"rouse/internal/text"
)

// repositoryFlaw returns what a program that works with git will be refused in the runs of a task, and the remedy. It returns ""
// if there is no repository in their folders, or each run has a private clone.
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
