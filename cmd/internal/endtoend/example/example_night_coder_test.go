package example

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// gitIn runs git as the owner.
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

// newGit reports whether the installed git supports checkouts.
func newGit() bool {
	var major, minor int
	out, err := exec.Command("git", "--version").Output()
	if err == nil {
		_, err = fmt.Sscanf(string(out), "git version %d.%d", &major, &minor)
	}
	return err == nil && (major > 2 || major == 2 && minor >= 38)
}

func needsGit(t *testing.T) {
	t.Helper()
	if !newGit() {
		t.Skip("needs git 2.38 or later")
	}
}

// makeApp creates the repository of the example as its README does.
func makeApp(t testing.TB, dir string) {
	t.Helper()
	gitIn(t, dir, "init", "-q", "-b", "main")
	gitIn(t, dir, "config", "user.name", "Owner")
	gitIn(t, dir, "config", "user.email", "owner@example.com")
	gitIn(t, dir, "add", ".")
	gitIn(t, dir, "commit", "-q", "-m", "The sum is wrong")
}

// TestExampleNightCoder plays the whole example: a failing test is fixed on a branch, the host runs
// the test, the diff waits, and one click merges it.
func TestExampleNightCoder(t *testing.T) {
	e := newExample(t, "night-coder")
	needsConfinement(t)
	needsGit(t)
	app := e.path("app")
	makeApp(t, app)

	e.wants(e.run("night-coder"), "success", "the branch rouse/night-coder-1 waits for you (1 commit, 1 file)")
	if e.read("app", "sum.sh") != "sum() { echo $(($1 - $2)); }\n" || gitIn(t, app, "status", "--porcelain") != "" {
		t.Error("the owner's files were changed before the branch was applied")
	}
	if inbox := endtoend.MustRun(t, "inbox", "--config", e.config); !strings.Contains(inbox, "waits for you: rouse apply 1 --diff") || !strings.Contains(inbox, "sum.sh  +1 -1") {
		t.Error(inbox)
	}
	if diff := endtoend.MustRun(t, "apply", "1", "--diff", "--config", e.config); !strings.Contains(diff, "+sum() { echo $(($1 + $2)); }") {
		t.Error(diff)
	}
	var c api.Checkout
	endtoend.RunJSON(t, &c, "apply", "1", "--json", "--config", e.config)
	if c.State != api.CheckoutApplied || c.Applied == nil || c.Applied.Branch != "main" {
		t.Errorf("%+v", c)
	}
	if e.read("app", "sum.sh") != "sum() { echo $(($1 + $2)); }\n" || gitIn(t, app, "rev-list", "--count", "main") != "2" || gitIn(t, app, "status", "--porcelain") != "" {
		t.Errorf("after apply: %q, %s", e.read("app", "sum.sh"), gitIn(t, app, "status", "--short"))
	}
	if inbox := endtoend.MustRun(t, "inbox", "--config", e.config); !strings.Contains(inbox, "nothing waits for you") {
		t.Error(inbox)
	}

	endtoend.MustRun(t, "discard", "1", "--config", e.config)
	if branches := gitIn(t, app, "branch", "--list", "rouse/*"); branches != "" || gitIn(t, app, "rev-list", "--count", "main") != "2" {
		t.Errorf("after discard: %s", branches)
	}
}

// edited reports whether the sum is fixed in a clone.
func edited(work string) bool {
	text, err := os.ReadFile(filepath.Join(work, "sum.sh"))
	return err == nil && strings.Contains(string(text), "+")
}

// holdScript creates a file in the clone when it reaches the step in the file hold, and then waits
// until the test lets it continue.
const holdScript = `#!/bin/sh
[ "$(cat hold)" = "$1" ] || exit 0
: > .git/reached
while [ ! -e .git/go ]; do sleep 0.1; done
`

// TestNightCoderKills kills the daemon at each step of the example. Exactly one commit of the run
// must reach main.
func TestNightCoderKills(t *testing.T) {
	t.Parallel()
	needsConfinement(t)
	needsGit(t)
	for _, step := range []string{"made", "committing", "committed", "collected", "testing", "applied"} {
		t.Run(step, func(t *testing.T) {
			e := &example{t, endtoend.CopyExample(t, "night-coder")}
			app, work := e.path("app"), e.path(".rouse", "checkouts", "runs", "1", "work")
			e.write(step, "app", "hold")
			e.write(holdScript, "app", "hold.sh")
			for hook, at := range map[string]string{"pre-commit": "committing", "post-commit": "committed"} {
				e.write("#!/bin/sh\nsh hold.sh "+at+"\n", "app", "hooks", hook)
				if err := os.Chmod(e.path("app", "hooks", hook), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			e.write("sh hold.sh testing\n"+e.read("app", "test.sh"), "app", "test.sh")
			e.write(strings.Replace(e.read("rouse.yaml"), "git commit", "git -c core.hooksPath=hooks commit", 1), "rouse.yaml")
			makeApp(t, app)

			p := endtoend.Serve(t, e.config)
			endtoend.RunJSON(t, nil, "run", "night-coder", "--json", "--config", e.config)
			if step != "applied" {
				at := map[string]string{"made": filepath.Join(filepath.Dir(work), "clone.json"), "collected": e.path("app", ".git", "refs", "heads", "rouse", "night-coder-1")}[step]
				cmdtest.Until(t, step, func() bool {
					_, err := os.Stat(cmp.Or(at, filepath.Join(work, ".git", "reached")))
					return err == nil
				})
				p.Kill(t)
				p = endtoend.Serve(t, e.config)
				cmdtest.Until(t, "the clone", func() bool { return os.WriteFile(filepath.Join(work, ".git", "go"), nil, 0o600) == nil })
			}

			var runs []api.Run
			cmdtest.Until(t, "the end of the run", func() bool {
				var items []api.Item
				endtoend.RunJSON(t, &items, "inbox", "--json", "--config", e.config)
				for _, i := range items { // a call was cut off; its owner checks its effect
					done := strings.Contains(i.Message, "hooksPath") && gitIn(t, work, "rev-list", "--count", "HEAD") == "2" || strings.Contains(i.Message, "file_edit") && edited(work)
					endtoend.RunJSON(t, nil, "answer", i.ID, map[bool]string{true: "done", false: "again"}[done], "--json", "--config", e.config)
				}
				runs = e.runs()
				return runs[0].State == "finished"
			})
			if len(runs) != 1 || runs[0].Outcome != "success" || runs[0].Attempt == 1 != (step == "applied") {
				t.Fatalf("%+v", runs)
			}
			if n := gitIn(t, app, "rev-list", "--count", "main..rouse/night-coder-1"); n != "1" || gitIn(t, app, "rev-list", "--count", "main") != "1" {
				t.Errorf("the branch has %s commits", n)
			}

			if step == "applied" {
				before := gitIn(t, app, "rev-parse", "main")
				asked := endtoend.Rouse(t, "apply", "1", "--config", e.config)
				if err := asked.Start(); err != nil {
					t.Fatal(err)
				}
				cmdtest.Until(t, "the new main", func() bool { return gitIn(t, app, "rev-parse", "main") != before })
				p.Kill(t)
				_ = asked.Wait() // its answer is lost
				p = endtoend.Serve(t, e.config)
			}
			for range 2 { // ask again, because the first answer was lost
				var c api.Checkout
				endtoend.RunJSON(t, &c, "apply", "1", "--json", "--config", e.config)
				if n := gitIn(t, app, "rev-list", "--count", "--all"); n != "2" || c.State != api.CheckoutApplied || !edited(app) || gitIn(t, app, "status", "--porcelain") != "" {
					t.Errorf("there are %s commits, %+v", n, c)
				}
			}
			endtoend.MustRun(t, "discard", "1", "--config", e.config)
			if n := gitIn(t, app, "rev-list", "--count", "main"); n != "2" || gitIn(t, app, "branch", "--list", "rouse/*") != "" {
				t.Errorf("in the end main has %s commits", n)
			}
			p.Stop(t)
			endtoend.AuditClean(t, e.config)
		})
	}
}
