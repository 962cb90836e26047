//go:build unix

package checkout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rouse/agent/checkout"
)

// crashing describes the work of a process that is killed at a step.
type crashing struct {
	Dir, Repo, Verb string
	Step            int
}

// crash runs a verb in a process that kills itself at a step.
func crash(text string) error {
	var c crashing
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	box, err := shared()
	if err != nil {
		return err
	}
	n := 0
	checkout.SetStep(func() {
		if n++; n == c.Step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	return do(&checkout.Store{Dir: c.Dir, Sandbox: box}, c.Repo, c.Verb)
}

func do(s *checkout.Store, repo, verb string) error {
	ctx, run := context.Background(), "1"
	c, err := s.Open(run)
	if verb == "make" {
		_, err = s.Make(ctx, run, checkout.Spec{Repo: repo, Ref: "main", Branch: "rouse/fix-1", Agent: "coder"})
	}
	if err != nil || verb == "make" {
		return err
	}
	switch verb {
	case "collect":
		_, err = s.Collect(ctx, c)
	case "discard":
		err = s.Discard(ctx, run)
	default:
		var state checkout.State
		if state, err = s.State(run); err == nil {
			_, err = s.Apply(ctx, *state.Result, checkout.How(verb))
		}
	}
	return err
}

// TestKilled kills a process at each step of each verb, and lets another process continue.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"make", "collect", "merge", "cherry-pick", "discard"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			steps := 0
			stride := 6
			if os.Getenv("ROUSE_TEST_ATTACKS") == "all" {
				stride = 1
			}
			for killedAt(t, verb, steps+1) {
				steps += stride
			}
			if steps < 5 {
				t.Errorf("%s has %d steps", verb, steps)
			}
			t.Logf("%s: killed at %d steps", verb, steps/stride)
		})
	}
}

// killedAt reports whether the step existed.
func killedAt(t *testing.T, verb string, step int) bool {
	t.Helper()
	repo, s := owner(t), store(t)
	if verb != "make" {
		if c := made(t, s, repo, "1"); true {
			write(t, filepath.Join(c.Dir, "a.txt"), "one\n2\nthree\n")
			write(t, filepath.Join(c.Dir, "dir/new.txt"), "new\n")
			os.Remove(filepath.Join(c.Dir, "b.txt"))
			commit(t, c.Dir, "fix")
		}
	}
	if verb == "merge" || verb == "cherry-pick" || verb == "discard" {
		c, _ := s.Open("1")
		collected(t, s, c)
	}
	if verb == "merge" || verb == "cherry-pick" {
		write(t, filepath.Join(repo, "c.txt"), "c\n")
		commit(t, repo, "meanwhile")
	}

	killed := killChild(t, crashing{s.Dir, repo, verb, step})
	at := fmt.Sprintf("%s killed at step %d: ", verb, step)
	if err := s.Recover(t.Context()); err != nil {
		t.Error(at, err)
	}
	if err := do(s, repo, verb); err != nil && (verb != "discard" || !errors.Is(err, checkout.ErrNone)) {
		t.Error(at, err)
		return false
	}

	count := func(what string) int {
		n, err := strconv.Atoi(git(t, repo, "rev-list", "--count", what))
		if err != nil {
			t.Error(at, err)
		}
		return n
	}
	switch verb {
	case "make":
		c, err := s.Open("1")
		if err != nil || git(t, c.Dir, "status", "--short", "--branch") != "## rouse/fix-1" || git(t, c.Dir, "fsck") != "" {
			t.Error(at, err)
		}
	case "collect":
		if count("rouse/fix-1") != 2 {
			t.Error(at, "commits are lost or doubled")
		}
	case "merge":
		if count("main") != 4 || git(t, repo, "status", "--porcelain") != "" {
			t.Error(at, git(t, repo, "log", "--oneline", "main"), git(t, repo, "status", "--porcelain"))
		}
	case "cherry-pick":
		if count("main") != 3 || git(t, repo, "status", "--porcelain") != "" {
			t.Error(at, git(t, repo, "log", "--oneline", "main"), git(t, repo, "status", "--porcelain"))
		}
	case "discard":
		if git(t, repo, "branch", "--list", "rouse/*") != "" {
			t.Error(at, "the branch is left")
		}
	}

	if _, err := s.Prune(func(checkout.Clone) bool { return true }, time.Now()); err != nil {
		t.Error(at, err)
	}
	left, _ := filepath.Glob(filepath.Join(repo, ".git/*rouse*"))
	locks, _ := filepath.Glob(filepath.Join(repo, ".git/*.lock"))
	runs, _ := filepath.Glob(filepath.Join(s.Dir, "runs/.*"))
	if len(left)+len(locks)+len(runs) > 0 {
		t.Error(at, "left ", left, locks, runs)
	}
	return killed
}

// killChild runs a verb in a process that is killed at a step. It reports whether the step existed.
func killChild(t *testing.T, c crashing) bool {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), crashKey+"="+string(text))
	out, err := child.CombinedOutput()
	status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	killed := ok && status.Signaled()
	if err != nil && !killed {
		t.Fatalf("step %d: %v\n%s", c.Step, err, out)
	}
	return killed
}

// TestKilledInAFile checks that after git was killed while writing a file, the error names the file
// and no data is lost. Apply continues once the owner has restored the file.
func TestKilledInAFile(t *testing.T) {
	t.Parallel()
	for step := 1; ; step++ {
		repo, s := owner(t), store(t)
		res := worked(t, s, repo, "1")
		killChild(t, crashing{s.Dir, repo, "merge", step})
		if _, err := os.Lstat(filepath.Join(repo, ".git/index.lock")); err != nil {
			if step > 60 {
				t.Fatal("there is no step with the lock")
			}
			continue
		}

		write(t, filepath.Join(repo, "a.txt"), "one\n2")
		write(t, filepath.Join(repo, "dir/new.txt"), "ne")
		_, err := s.Apply(t.Context(), res, checkout.Merge)
		if err == nil || !strings.Contains(err.Error(), "would be overwritten, with changes that are not committed: a.txt, dir/new.txt") {
			t.Fatal(err)
		}
		git(t, repo, "checkout", "-q", "a.txt")
		os.Remove(filepath.Join(repo, "dir/new.txt"))
		if _, err := s.Apply(t.Context(), res, checkout.Merge); err != nil {
			t.Fatal(err)
		}
		if git(t, repo, "status", "--porcelain") != "" || git(t, repo, "rev-parse", "main") != res.Head || read(t, filepath.Join(repo, "a.txt")) != "one\n2\nthree\n" {
			t.Error("it was not applied:", git(t, repo, "status"))
		}
		return
	}
}
