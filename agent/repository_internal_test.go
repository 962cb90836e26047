package agent

import (
	"os"
	"path/filepath"
	"testing"

	"rouse/agent/plan"
)

// TestRepositoryIsSystem checks OSL-19: the repository tools access more than the agent's own
// places, and are available without being named.
func TestRepositoryIsSystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	of := plan.Task{Agent: plan.Agent{Name: "clerk", Workdir: dir}}
	if uses := of.UsesSystem(Specs()); uses != "" {
		t.Errorf("without a repository it uses %s", uses)
	}

	if err := os.Mkdir(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if uses := of.UsesSystem(Specs()); uses != "git_status" {
		t.Errorf("in a repository it uses %q", uses)
	}

	of.Agent.Deny = []string{"git_*"}
	if uses := of.UsesSystem(Specs()); uses != "" {
		t.Errorf("with git denied it uses %s", uses)
	}
}
