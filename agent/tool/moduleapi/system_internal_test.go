package moduleapi

import (
	"slices"
	"testing"
)

// TestRecipes checks that known tool ids have a program and an install command for the available
// package manager (OSL-37).
func TestRecipes(t *testing.T) {
	t.Parallel()
	for id, c := range map[string]struct {
		program, has, command string
	}{
		"claude-code":    {"claude", "npm", "npm install -g @anthropic-ai/claude-code"},
		"github-cli":     {"gh", "apt", "sudo apt install gh"},
		"gh":             {"gh", "pacman", "sudo pacman -S github-cli"},
		"ripgrep":        {"rg", "brew", "brew install ripgrep"},
		"git":            {"git", "winget", "winget install Git.Git"},
		"python":         {"python3", "npm", ""},
		"no-such-tool":   {"no-such-tool", "apt", ""},
		"../claude-code": {"../claude-code", "npm", ""},
	} {
		if got := programOf(id); got != c.program {
			t.Errorf("%s is %s", id, got)
		}
		if got := installCommand(id, func(program string) bool { return program == c.has }); got != c.command {
			t.Errorf("%s: %q, want %q", id, got, c.command)
		}
	}

	for id, r := range recipes {
		for manager := range r.packages {
			if manager != "" && !slices.ContainsFunc(packageManagers, func(m struct{ program, install string }) bool { return m.program == manager }) {
				t.Errorf("%s: there is no package manager %s", id, manager)
			}
		}
	}
}
