package checkout_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rouse/agent/checkout"
	"rouse/agent/sandbox"
)

// crashKey is the environment variable for the work of a process that is killed. See TestKilled.
const crashKey = "ROUSE_TEST_CRASH"

func TestMain(m *testing.M) {
	sandbox.Child()
	if text := os.Getenv(crashKey); text != "" {
		if err := crash(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// git runs git with an identity, like a person.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(t, dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func tryGit(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_TERMINAL_PROMPT=0")
	out, err := c.CombinedOutput()
	return string(out), err
}

// write writes a file and the folders above it.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// owner creates the owner's repository with a commit on main.
func owner(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "app")
	git(t, ".", "init", "-q", "-b", "main", dir)
	git(t, dir, "config", "user.name", "Olga Owner")
	git(t, dir, "config", "user.email", "olga@example.com")
	write(t, filepath.Join(dir, "a.txt"), "one\ntwo\nthree\n")
	write(t, filepath.Join(dir, "b.txt"), "b\n")
	commit(t, dir, "first")
	return dir
}

func commit(t *testing.T, dir, message string) string {
	t.Helper()
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", message)
	return git(t, dir, "rev-parse", "HEAD")
}

// shared is the sandbox of all tests, because probing the machine takes time. ROUSE_TEST_TIER
// selects a weaker tier.
var shared = sync.OnceValues(func() (*sandbox.Sandbox, error) {
	return sandbox.New(sandbox.Options{MaxTier: sandbox.Tier(os.Getenv("ROUSE_TEST_TIER"))})
})

// store returns a store with a sandbox of the strongest tier of this machine. It skips the test if
// there is no sandbox.
func store(t *testing.T) *checkout.Store {
	t.Helper()
	box, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	if tier, reasons := box.Tier(t.Context()); !tier.AtLeast(sandbox.TierLandlock) {
		t.Skip("programs cannot be confined here: ", reasons)
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &checkout.Store{Dir: filepath.Join(home, "checkouts"), Sandbox: box}
}

// made makes a clone of the owner's repository.
func made(t *testing.T, s *checkout.Store, repo, run string) checkout.Clone {
	t.Helper()
	c, err := s.Make(t.Context(), run, checkout.Spec{Repo: repo, Ref: "main", Branch: "rouse/fix-" + run, Agent: "coder"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func collected(t *testing.T, s *checkout.Store, c checkout.Clone) checkout.Result {
	t.Helper()
	res, err := s.Collect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return res
}
