package install_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
