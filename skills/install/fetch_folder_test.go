package install_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/skills/install"
)

// Git ignores settings that an agent wrote to the current directory of rouse.
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

// Git fetches into a directory below the root instead of the system's temporary directory, where an
// agent may have write access.
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

	for _, name := range []string{"TMPDIR", "TMP"} { // Unix and Windows
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

// A repository that is too large is rejected during the fetch, and all Git processes are killed.
func TestLargeRepository(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}

	repository, root := folder(t, item{"SKILL.md", csv, 0}), t.TempDir()
	large, err := os.Create(filepath.Join(repository, "large"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(large.Truncate(150<<20), large.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q"}, {"config", "core.compression", "0"}, {"config", "core.bigFileThreshold", "1m"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "commit", "-qm", "one"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = repository
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
	}

	most, done, watched := int64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
			n := int64(0)
			_ = filepath.WalkDir(root, func(_ string, e os.DirEntry, err error) error {
				if err == nil {
					if info, err := e.Info(); err == nil && !e.IsDir() {
						n += info.Size()
					}
				}
				return nil
			})
			most = max(most, n)
		}
	}()
	_, err = install.Fetch(t.Context(), root, install.Source{From: "file:///" + strings.TrimPrefix(filepath.ToSlash(repository), "/")})
	close(done)
	<-watched
	if err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Error(err)
	}
	t.Logf("received: %d MiB", most>>20)
	if most > 140<<20 {
		t.Errorf("%d MiB were received before it was refused", most>>20)
	}
	if left, err := filepath.Glob(filepath.Join(root, ".staging", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A fetch does not run programs that the configuration of the repository names.
func TestConfigurationOfTheSource(t *testing.T) {
	for _, program := range []string{"git", "sh"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}

	repository, canary := folder(t, item{"SKILL.md", csv, 0}, item{".gitattributes", "* filter=evil diff=evil\n", 0}), filepath.Join(t.TempDir(), "canary")
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = repository
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
	}
	run("init", "-q")
	run("add", ".")
	run("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "commit", "-qm", "one")
	program := "touch '" + canary + "'; false"
	for key, value := range map[string]string{
		"core.fsmonitor": program, "core.sshCommand": program, "core.gitProxy": program, "core.alternateRefsCommand": program, "core.hooksPath": filepath.Join(repository, "hooks"),
		"uploadpack.packObjectsHook": program, "filter.evil.clean": program, "filter.evil.smudge": program, "filter.evil.process": program, "tar.tar.command": program, "tar.umask": "user",
		"extensions.partialClone": "evil", "core.repositoryFormatVersion": "1", "remote.evil.promisor": "true", "remote.evil.url": repository, "remote.evil.uploadpack": program,
	} {
		run("config", key, value)
	}
	for _, hook := range []string{"post-checkout", "reference-transaction", "pre-receive"} {
		at := filepath.Join(repository, "hooks", hook)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte("#!/bin/sh\n"+program+"\n"), 0o755)); err != nil { //nolint:gosec // a script is run
			t.Fatal(err)
		}
	}

	url := "file:///" + strings.TrimPrefix(filepath.ToSlash(repository), "/")
	if _, err := install.Latest(t.Context(), url, ""); err != nil {
		t.Error(err)
	}
	for _, gone := range []bool{false, true} {
		// Make a partial clone. For its missing objects, Git would run a program from the
		// configuration.
		if gone {
			found, _ := filepath.Glob(filepath.Join(repository, ".git", "objects", "??", "*"))
			for _, path := range found {
				if text, err := exec.CommandContext(t.Context(), "git", "-C", repository, "cat-file", "-t", filepath.Base(filepath.Dir(path))+filepath.Base(path)).Output(); err == nil && string(text) == "blob\n" {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		staged, err := install.Fetch(t.Context(), t.TempDir(), install.Source{From: url})
		if (err == nil) == gone {
			t.Errorf("gone: %t: %v", gone, err)
		}
		if err == nil {
			if err := staged.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(canary); err == nil {
			t.Fatal("git ran a program that the repository names")
		}
	}
}
