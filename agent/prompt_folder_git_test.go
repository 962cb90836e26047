package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/plan"
)

// TestFolderUnderGit checks OSA-39: the prompt of a run in a project contains the changes that git
// reports. Programs in the configuration of the folder, which the agent may have written, are not
// run. Each of them would create a canary file.
func TestFolderUnderGit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	needShell(t)
	needConfinement(t)

	b := setup(t, done, done)
	b.write("work/go.mod", "module x\n")
	work, canary := filepath.Join(b.dir, "work"), filepath.Join(b.dir, "work", "canary")
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir, cmd.Env = work, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q", "-b", "main")
	git("add", ".")
	git("commit", "-qm", "first")

	// The program also kills the git that started it, which is visible even if it cannot write.
	runs := `"touch '` + canary + `' 2>/dev/null; kill -9 $PPID; :"`
	b.write("work/.git/config", "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "+runs+"\n\tpager = "+runs+"\n[pager]\n\tstatus = "+runs+
		"\n[filter \"evil\"]\n\tclean = "+runs+"\n\tprocess = "+runs+"\n[diff]\n\texternal = "+runs+"\n[alias]\n\tstatus = \"!touch '"+canary+"'\"\n")
	b.write("work/.gitattributes", "* filter=evil\n")
	for _, hook := range []string{"post-index-change", "fsmonitor-watchman"} {
		b.write("work/.git/hooks/"+hook, "#!/bin/sh\ntouch '"+canary+"' 2>/dev/null; kill -9 $PPID\n")
		if err := os.Chmod(filepath.Join(work, ".git", "hooks", hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.write("work/go.mod", "module y\n")

	id := b.adhoc("Look.")
	b.ends(id)
	if told := b.heard(); !strings.Contains(told, `modified \"go.mod\" (not staged)`) || !strings.Contains(told, `untracked \".gitattributes\"`) {
		t.Errorf("the prompt does not say what has changed:\n%s", told)
	}
	if _, err := os.Stat(canary); err == nil {
		t.Error("a program that the folder names was run")
	}

	// Check that the attack works: git itself runs the configured programs.
	cmd := exec.CommandContext(t.Context(), "git", "status")
	cmd.Dir, cmd.Env = work, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "GIT_CONFIG_NOSYSTEM=1"}
	out, _ := cmd.CombinedOutput() // the attack may make it fail
	if _, err := os.Stat(canary); err != nil {
		t.Errorf("the folder names nothing that git runs: %s", out)
	}
}

// TestPlainFolderOfARun checks OSA-39: a prompt lists the files of a folder that is not a project,
// unless the list would label the run.
func TestPlainFolderOfARun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bench)
		want   bool
	}{
		"plain":     {func(*bench) {}, true},
		"private":   {func(b *bench) { b.clerk(func(a *plan.Agent) { a.PrivateFolders = []string{a.Workdir} }) }, false},
		"untrusted": {func(b *bench) { b.plan.UntrustedFolders = []string{filepath.Join(b.dir, "work", "in")} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, done)
			b.write("work/notes.md", "x")
			b.write("work/in/letter.txt", "x")
			c.change(b)
			id := b.adhoc("Look.")
			b.ends(id)
			if told := b.heard(); strings.Contains(told, "notes.md") != c.want || strings.Contains(told, "letter.txt") != c.want {
				t.Errorf("the model is told\n%s", told)
			}
			if met := b.met(id); met != "" {
				t.Errorf("the run holds %q", met)
			}
		})
	}
}
