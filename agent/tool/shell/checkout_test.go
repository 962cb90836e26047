package shell_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckout checks that an agent can use all of git in its private clone, including hooks, and
// that nothing there is disarmed.
func TestCheckout(t *testing.T) {
	t.Parallel()
	needGit(t)
	b := newBench(t).confined()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", "-b", "main", b.dir).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	// On the weaker sandbox chmod has no effect, so the agent itself cannot make the hook
	// executable.
	if err := os.WriteFile(filepath.Join(b.dir, ".git/hooks/pre-commit"), []byte("#!/bin/sh\ntouch hooked\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.options.Launcher.Checkout = b.dir

	e, got := b.run(`set -e
git config user.name A; git config user.email a@example.com
echo a > a; git add a; git commit -q -m one; test -e hooked
git checkout -q -b b; echo b >> a; git stash -q; git stash pop -q; git commit -q -a -m two
git checkout -q main; git merge -q b; git rebase -q b; git log --oneline; git init -q other`)
	if got["exit_code"] != 0.0 || len(e.Warnings) > 0 && strings.Contains(strings.Join(e.Warnings, " "), "git repository") {
		t.Fatalf("%v %v", got, e.Warnings)
	}
	out, err := exec.CommandContext(t.Context(), "git", "--git-dir", filepath.Join(b.dir, ".git"), "log", "--format=%s", "main").Output()
	if string(out) != "two\none\n" {
		t.Fatal(err, string(out))
	}
}
