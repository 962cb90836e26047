package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
)

// gitIn runs the owner's git.
func gitIn(t testing.TB, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// makeApp makes the repository of the example, as its README does.
func makeApp(t testing.TB, dir string) {
	t.Helper()
	gitIn(t, dir, "init", "-q", "-b", "main")
	gitIn(t, dir, "config", "user.name", "Owner")
	gitIn(t, dir, "config", "user.email", "owner@example.com")
	gitIn(t, dir, "add", ".")
	gitIn(t, dir, "commit", "-q", "-m", "The sum is wrong")
}

// The example as a whole: a failing test is mended on a branch, the host runs the test, the diff waits, and one click merges it.
func TestExampleNightCoder(t *testing.T) {
	e := newExample(t, "night-coder")
	needsConfinement(t)
	app := e.path("app")
	makeApp(t, app)

	e.wants(e.run("night-coder"), "success", "the branch rouse/night-coder-1 waits for you (1 commit, 1 file)")
	if e.read("app", "sum.sh") != "sum() { echo $(($1 - $2)); }\n" || gitIn(t, app, "status", "--porcelain") != "" {
		t.Error("the owner's files were changed before the branch was applied")
	}
	if inbox := mustRun(t, "inbox", "--config", e.config); !strings.Contains(inbox, "waits for you: rouse apply 1 --diff") || !strings.Contains(inbox, "sum.sh  +1 -1") {
		t.Error(inbox)
	}
	if diff := mustRun(t, "apply", "1", "--diff", "--config", e.config); !strings.Contains(diff, "+sum() { echo $(($1 + $2)); }") {
		t.Error(diff)
	}
	var c api.Checkout
	runJSON(t, &c, "apply", "1", "--json", "--config", e.config)
	if c.State != api.CheckoutApplied || c.Applied == nil || c.Applied.Branch != "main" {
		t.Errorf("%+v", c)
	}
	if e.read("app", "sum.sh") != "sum() { echo $(($1 + $2)); }\n" || gitIn(t, app, "rev-list", "--count", "main") != "2" || gitIn(t, app, "status", "--porcelain") != "" {
		t.Errorf("after apply: %q, %s", e.read("app", "sum.sh"), gitIn(t, app, "status", "--short"))
	}
	if inbox := mustRun(t, "inbox", "--config", e.config); !strings.Contains(inbox, "nothing waits for you") {
		t.Error(inbox)
	}

	mustRun(t, "discard", "1", "--config", e.config)
	if branches := gitIn(t, app, "branch", "--list", "rouse/*"); branches != "" || gitIn(t, app, "rev-list", "--count", "main") != "2" {
		t.Errorf("after discard: %s", branches)
	}
}

// edited reports whether the sum is mended in a clone.
func edited(work string) bool {
	text, err := os.ReadFile(filepath.Join(work, "sum.sh"))
	return err == nil && strings.Contains(string(text), "+")
}

// TestNightCoderKills kills the daemon at each step of the example: no commit is lost, and none is made twice.
func TestNightCoderKills(t *testing.T) {
	t.Parallel()
	needsConfinement(t)
	config := copyExample(t, "night-coder")
	dir := filepath.Dir(config)
	app := filepath.Join(dir, "app")
	makeApp(t, app)

	exists := func(path ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{dir}, path...)...))
		return err == nil
	}
	branches := 0
	for _, step := range []string{"made", "running", "collected", "applied"} {
		branches++
		run := fmt.Sprint(branches)
		clone := []string{".rouse", "checkouts", "runs", run}
		p := serveUntilReady(t, config)
		runJSON(t, nil, "run", "night-coder", "--json", "--config", config)
		cmdtest.Until(t, step, func() bool {
			switch step {
			case "made":
				return exists(append(clone, "clone.json")...)
			case "running":
				return exists(append(clone, "work", ".git", "COMMIT_EDITMSG")...) || exists(append(clone, "quarantine.git")...) || exists("app", ".git", "refs", "heads", "rouse", "night-coder-"+run)
			}
			return exists("app", ".git", "refs", "heads", "rouse", "night-coder-"+run)
		})
		if step != "applied" {
			p.kill(t)
			p = serveUntilReady(t, config)
		}

		var runs []api.Run
		cmdtest.Until(t, "the end of the run", func() bool {
			var items []api.Item
			runJSON(t, &items, "inbox", "--json", "--config", config)
			for _, i := range items { // a call that was cut off: its owner looks whether the commit is there
				answer, work := "again", filepath.Join(append(append([]string{dir}, clone...), "work")...)
				if strings.Contains(i.Message, "git commit") && gitIn(t, work, "rev-list", "--count", "HEAD") == "2" || strings.Contains(i.Message, "file_edit") && edited(work) {
					answer = "done"
				}
				runJSON(t, nil, "answer", i.ID, answer, "--json", "--config", config)
			}
			runJSON(t, &runs, "runs", "--json", "--config", config)
			return runs[0].State == "finished"
		})
		if runs[0].Outcome != "success" || len(runs) != branches {
			t.Fatalf("%s: %+v", step, runs[0])
		}
		branch := "rouse/night-coder-" + run
		if n := gitIn(t, app, "rev-list", "--count", "main.."+branch); n != "1" {
			t.Errorf("%s: the branch has %s commits", step, n)
		}

		if step == "applied" {
			before := gitIn(t, app, "rev-parse", "main")
			asked := rouse(t, "apply", run, "--config", config)
			if err := asked.Start(); err != nil {
				t.Fatal(err)
			}
			cmdtest.Until(t, "the new main", func() bool { return gitIn(t, app, "rev-parse", "main") != before })
			p.kill(t)
			_ = asked.Wait() // its answer is lost
			p = serveUntilReady(t, config)
			var c api.Checkout
			runJSON(t, &c, "apply", run, "--json", "--config", config)
			if n := gitIn(t, app, "rev-list", "--count", "main"); n != "2" || c.State != api.CheckoutApplied || gitIn(t, app, "status", "--porcelain") != "" {
				t.Errorf("%s: main has %s commits, %+v", step, n, c)
			}
		} else {
			mustRun(t, "discard", run, "--config", config)
		}
		p.stop(t)
		auditClean(t, config)
	}
	if n := gitIn(t, app, "rev-list", "--count", "--all"); n != "2" {
		t.Errorf("in the end there are %s commits", n)
	}
}
