package install_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rouse/skills/install"
)

// What an agent wrote into the folder in which rouse is started is no setting for git.
func TestFolderOfTheCaller(t *testing.T) {
	for _, program := range []string{"git", "sh"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}

	dir, canary := t.TempDir(), filepath.Join(t.TempDir(), "canary")
	for name, text := range map[string]string{
		"HEAD": "ref: refs/heads/main\n", "objects/x": "", "refs/x": "",
		"config": "[core]\n\trepositoryformatversion = 0\n\tgitProxy = " + filepath.Join(dir, "run") + "\n", "run": "#!/bin/sh\ntouch '" + canary + "'\n",
	} {
		for _, path := range []string{filepath.Join(dir, name), filepath.Join(dir, ".git", name)} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil { //nolint:gosec // a script is run
				t.Fatal(err)
			}
		}
	}

	t.Chdir(dir)
	if _, err := install.Latest(t.Context(), "git://127.0.0.1:1/none.git", ""); err == nil {
		t.Error("there is no such server")
	}
	if _, err := os.Stat(canary); err == nil {
		t.Error("git ran a program that the folder names")
	}
}

// What git is fetched into lies below the root, and not in the system's folder for temporary files: an agent that was
// granted that one could write settings for git into it.
func TestFetchedBelowTheRoot(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}

	repository, root := folder(t, item{"SKILL.md", csv, 0}), t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "commit", "-qm", "one"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = repository
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
	}

	for _, name := range []string{"TMPDIR", "TMP"} { // of Unix, and of Windows
		t.Setenv(name, filepath.Join(root, "none"))
	}
	staged, err := install.Fetch(t.Context(), root, install.Source{From: "file:///" + strings.TrimPrefix(filepath.ToSlash(repository), "/")})
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Close(); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(root, ".staging", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
