package shell_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent/tool/shell"
)

// ownersStatus runs git status as the owner in a folder in which an agent works.
func (b *bench) ownersStatus(folder string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "git", "status")
	cmd.Dir, cmd.Env = filepath.Join(b.dir, folder), []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
	out, _ := cmd.CombinedOutput() // an attack may make it fail
	return string(out)
}

// layout returns a script that gives a folder the layout of a repository with a program in its
// configuration.
func layout(folder, canary string) string {
	return fmt.Sprintf(`mkdir -p %[1]s/objects %[1]s/refs/heads; echo 'ref: refs/heads/main' > %[1]s/HEAD
printf '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = "touch %[2]s;:"\n' > %[1]s/config; `, folder, canary)
}

// TestPlantedRepositories checks that a command cannot create a repository whose programs git would
// run for the owner.
func TestPlantedRepositories(t *testing.T) {
	t.Parallel()
	needGit(t)
	for name, c := range map[string]struct{ script, status string }{
		"a repository":             {"mkdir sub; " + layout("sub/.git", "CANARY"), "sub"},
		"in the workdir":           {layout(".git", "CANARY"), "."},
		"renamed":                  {"mkdir sub; " + layout("sub/x", "CANARY") + "mv sub/x sub/.git", "sub"},
		"bare":                     {layout("bare", "CANARY"), "bare"},
		"a bare workdir":           {layout(".", "CANARY"), "."},
		"a file":                   {"mkdir sub; " + layout("meta", "CANARY") + "rm meta/HEAD; mkdir meta/h; mv meta/h meta/x; echo 'ref: refs/heads/main' > meta/HEAD; echo 'gitdir: ../meta' > sub/.git", "sub"},
		"a link":                   {"mkdir sub; " + layout("meta", "CANARY") + "ln -s ../meta sub/.git", "sub"},
		"a common folder":          {layout("meta", "CANARY") + "rm meta/HEAD; mkdir -p sub; echo 'ref: refs/heads/main' > sub/HEAD; echo ../meta > sub/commondir", "sub"},
		"within another one":       {"mkdir sub; " + layout("sub/.git", "CANARY") + layout("sub/.git/modules/x", "CANARY"), "sub/disarmed-git-1/modules/x"},
		"behind a name of the kit": {"mkdir sub disarmed-git-1; " + layout("sub/.git", "CANARY") + "cp -r sub/.git disarmed-git-1/x", "disarmed-git-1/x"},
		"a closed folder":          {"mkdir sub; " + layout("sub/.git", "CANARY") + "chmod 000 sub || :", "sub"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t).confined()
			canary := filepath.Join(t.TempDir(), "canary")
			_, got := b.run(strings.ReplaceAll(c.script, "CANARY", canary) + ":")
			if got["exit_code"] != 0.0 {
				t.Fatalf("%v", got)
			}

			said := b.ownersStatus(c.status)
			if _, err := os.Stat(canary); err == nil {
				t.Errorf("git ran a program for its owner: %s", said)
			}
			if out, _ := exec.CommandContext(t.Context(), "find", b.dir, "-iname", ".git").Output(); len(out) > 0 {
				t.Errorf("left: %s", out)
			}
		})
	}
}

// TestDisarmedOnce checks that a disarmed repository is reported once, and that the reported
// command restores it completely.
func TestDisarmedOnce(t *testing.T) {
	t.Parallel()
	needGit(t)
	for name, script := range map[string]string{
		"it's new/.git": `git init -q "it's new"`,
		"$(x)/pile":     `mkdir '$(x)'; git init -q --bare '$(x)/pile'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t).confined()
			e, _ := b.run(script)
			said := slices.DeleteFunc(slices.Clone(e.Warnings), func(w string) bool { return !strings.Contains(w, "git repository") })
			if len(said) != 1 || !strings.HasPrefix(said[0], name+" is a git repository that this command made") {
				t.Fatalf("%q", e.Warnings)
			}
			_, undo, _ := strings.Cut(said[0], "bring it back with: ")
			cmd := exec.CommandContext(t.Context(), "sh", "-c", undo)
			cmd.Dir = b.dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v %s", undo, err, out)
			}
			if !strings.HasPrefix(b.text(name+"/HEAD"), "ref: ") {
				t.Errorf("%s does not bring it back", undo)
			}
			if out, _ := exec.CommandContext(t.Context(), "find", b.dir, "-name", "disarmed-*").Output(); len(out) > 0 {
				t.Errorf("left: %s", out)
			}
		})
	}
}

// TestOwnersRepository checks that a command can read the owner's repositories but not change them.
func TestOwnersRepository(t *testing.T) {
	t.Parallel()
	needGit(t)
	b := newBench(t).confined()
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", `cd "$0" && git init -q repo && cd repo && echo one > a && git add a && git -c user.name=o -c user.email=o@example.com commit -qm first &&
		cd .. && git clone -q --bare repo pile && mkdir free`, b.dir).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	before := tree(t, b.dir, "repo/.git", "pile")

	_, got := b.run(`cat repo/.git/HEAD pile/HEAD; exec 2>/dev/null
		for d in repo/.git pile; do echo x > $d/commondir; echo x > $d/config.worktree; echo x >> $d/HEAD; mkdir $d/hooks/x; mkdir $d/modules; rm -rf $d; mv $d moved; done
		mv repo moved; git -C repo commit --allow-empty -m x; echo x > free/own; :`)
	if out := got["stdout"].(string); strings.Count(out, "refs/heads") != 2 {
		t.Errorf("it cannot be read: %v", got)
	}
	if after := tree(t, b.dir, "repo/.git", "pile"); after != before {
		t.Errorf("the repositories have changed:\n%s\n%s", before, after)
	}
	if b.text("free/own") != "x\n" {
		t.Error("nothing can be written beside them")
	}
}

// tree lists the files in some folders, with sizes.
func tree(t *testing.T, dir string, folders ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "find", append(folders, "-printf", "%p %y %s\n")...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestRecover checks that repositories made by a command of a dead process are disarmed before
// other programs start.
func TestRecover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	scratch, work := filepath.Join(dir, "commands"), filepath.Join(dir, "work")
	for name, text := range map[string]string{
		"commands/rouse-command-1/before.json": fmt.Sprintf(`{"roots":[%q],"owners":[%q]}`, work, filepath.Join(work, "own/.git")),
		"commands/rouse-command-1/home/x":      "x", "commands/rouse-command-2/home/x": "x", "commands/rouse-git-3/index": "x",
		"work/own/.git/HEAD": "ref: refs/heads/main", "work/new/.git/config": "x",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	found, err := shell.Recover(t.Context(), scratch)
	disarmed := found.Disarmed
	if want := filepath.Join(work, "new/.git"); err != nil || len(disarmed) != 1 || disarmed[0].Path != want {
		t.Errorf("%v %v", disarmed, err)
	}
	if left, _ := os.ReadDir(scratch); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(work, "own/.git/HEAD")); err != nil {
		t.Error("the owner's repository was touched")
	}
	if _, err := shell.Recover(t.Context(), filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
}

// TestNothingIsLeft checks that concurrent commands leave no files in the folder.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	b.options.Launcher.Scratch = filepath.Join(t.TempDir(), "commands")
	done := make(chan struct{})
	for range 4 {
		go func() {
			b.call("shell_run", map[string]any{"command": "sleep 0.2"})
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}

	for _, dir := range []string{b.dir, b.options.Launcher.Scratch} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s has %v %v", dir, left, err)
		}
	}
}

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
}
