package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/plan"
	"rouse/agent/sandbox"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/nofollow"
)

// confining reports whether programs can be confined on this machine.
var confining = sync.OnceValue(func() bool {
	box, err := sandbox.New(sandbox.Options{})
	if err != nil {
		return false
	}
	defer box.Close()
	tier, _ := box.Tier(context.Background())
	return tier.AtLeast(sandbox.TierLandlock)
})

func needConfinement(t *testing.T) {
	t.Helper()
	if !confining() {
		t.Skip("this machine confines nothing")
	}
}

func needShell(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
}

// TestCommandCondition checks that the exit code of a command decides. The command gets few
// variables of the daemon's environment, and runs in the agent's folder.
func TestCommandCondition(t *testing.T) {
	needShell(t)
	b := setup(t)
	t.Setenv("ROUSE_CANARY", "leaked")
	script := func(text string) []string { return []string{"sh", "-c", text} }
	for _, c := range []struct {
		argv    []string
		outcome domain.Outcome
		say     string
	}{
		{[]string{"echo", "hello", "$HOME; echo 'x'"}, domain.OutcomeSuccess, "exit 0: hello $HOME; echo 'x'"},
		{script("pwd"), domain.OutcomeSuccess, filepath.Join(filepath.Base(b.dir), "work")},
		{script("env | cut -d= -f1 | sort | tr '\\n' ' '"), domain.OutcomeSuccess, "PATH"},
		{script("test -z \"$ROUSE_CANARY\""), domain.OutcomeSuccess, "exit 0"},
		{script("cat; echo over"), domain.OutcomeSuccess, "exit 0: over"},
		{script("exit 3"), domain.OutcomeSkipped, `gate: command "sh -c exit 3" gave exit 3 (rouse.yaml:14)`},
		{script("echo; echo ' '; echo to stderr >&2; echo more; exit 1"), domain.OutcomeSkipped, "gave exit 1: to stderr ("},
		{script("kill -9 $$"), domain.OutcomeError, "it was ended from outside (signal: SIGKILL)"},
		{[]string{"rouse-no-such-program"}, domain.OutcomeError, `there is no program "rouse-no-such-program" on the daemon's PATH; install it, or give its path`},
		{[]string{filepath.Join(b.dir, "none.sh")}, domain.OutcomeError, "none.sh does not exist"},
		{[]string{b.dir}, domain.OutcomeError, "may not be executed"},
	} {
		res, events := b.gated(plan.Condition{Command: c.argv})
		text := res.Error
		if c.outcome == domain.OutcomeSuccess && len(events) == 1 {
			text = events[0].Value
		}
		if res.Outcome != c.outcome || !strings.Contains(text, c.say) {
			t.Errorf("%q: %+v, %+v", c.argv, res, events)
		}
	}

	if res, _ := b.gated(plan.Condition{Command: script("exit 3"), Not: true}); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}
	if res, _ := b.gated(plan.Condition{Command: []string{"rouse-no-such-program"}, Not: true}); res.Outcome != domain.OutcomeError {
		t.Errorf("what cannot be checked is not true either: %+v", res)
	}
}

// TestHostileOutput checks that one short line of a command's output is kept as plain text, without
// secrets.
func TestHostileOutput(t *testing.T) {
	t.Parallel()
	needShell(t)
	b := setup(t)
	for what, c := range map[string]struct{ script, want string }{
		"a flood":       {"yes rouse | head -c 10000000; exit 1", "exit 1: rouse"},
		"one long line": {"head -c 10000000 /dev/zero | tr '\\0' x; exit 1", "exit 1: " + strings.Repeat("x", 199) + "…"},
		"lines":         {"printf 'one\\r\\ntwo\\nthree'; exit 1", "exit 1: one"},
		"colour":        {"printf '\\033[1;31mFAIL\\033[0m \\033]0;title\\007it\\n'; exit 1", "exit 1: FAIL it"},
		"control":       {"printf 'a\\tb\\000c\\010\\302\\233d\\n'; exit 1", "exit 1: a b\uFFFDc\uFFFD\uFFFDd"},
		"direction":     {"printf 'a\\342\\200\\256b\\n'; exit 1", "exit 1: a\uFFFDb"},
		"not UTF-8":     {"printf '\\377\\376 caf\\351 \\303\\251\\n'; exit 1", "exit 1: \uFFFD caf\uFFFD é"},
		"a secret":      {"echo key sk-canary-and-more; exit 1", "exit 1: key [secret]"},
		"a torn secret": {"printf 'sk-\\033[0mcanary\\n'; exit 1", "exit 1: [secret]"},
	} {
		res, events := b.gated(plan.Condition{Command: []string{"sh", "-c", c.script}})
		if res.Outcome != domain.OutcomeSkipped || len(events) != 1 || events[0].Value != c.want || !strings.Contains(res.Error, "gave "+c.want+" (") {
			t.Errorf("%s: %+q, %+v", what, fmt.Sprint(events), res)
		}
	}

	_, events := b.gated(plan.Condition{SQL: "select 'sk-canary' || char(10) || char(27) || '[31m' || 'x'", Not: true})
	if len(events) != 1 || events[0].Value != `"[secret]\n\x1b[31mx"` {
		t.Errorf("%+v", events)
	}
}

// TestCommandsThatLinger checks that a command that exceeds its timeout is killed with all its
// children. A command that exits but leaves a child behind is not waited for.
func TestCommandsThatLinger(t *testing.T) {
	t.Parallel()
	needShell(t)
	b := setup(t)
	running := func(seconds string) bool {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		return slices.ContainsFunc(all, func(path string) bool {
			raw, _ := os.ReadFile(path) // empty after the process has ended
			return string(raw) == "sleep\x00"+seconds+"\x00"
		})
	}
	own := func(i int) string { return fmt.Sprintf("9%d.%d", os.Getpid(), i) }

	begin := time.Now()
	res, _ := b.gated(plan.Condition{Command: []string{"sh", "-c", "sleep " + own(1) + " & trap '' TERM; wait"}, Timeout: 300 * time.Millisecond})
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "it took longer than 300ms and was stopped") {
		t.Errorf("%+v", res)
	}

	res, events := b.gated(plan.Condition{Command: []string{"sh", "-c", "sleep " + own(2) + " & echo started"}})
	if res.Outcome != domain.OutcomeSuccess || events[0].Value != "exit 0: started" {
		t.Errorf("%+v, %+v", res, events)
	}

	res, events = b.gated(plan.Condition{Command: []string{"sh", "-c", "sleep " + own(3) + " & exit 4"}})
	if res.Outcome != domain.OutcomeSkipped || events[0].Value != "exit 4" {
		t.Errorf("%+v, %+v", res, events)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}

	for i := range 3 {
		for tries := 0; running(own(i + 1)); tries++ {
			if tries > 50 {
				t.Fatalf("sleep %s lives on", own(i+1))
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// TestConfinedCondition checks that a command is confined. It reads the agent's places and the
// paths that the owner names. It cannot write unless the owner allows it, and it has no network.
func TestConfinedCondition(t *testing.T) {
	t.Parallel()
	needShell(t)
	needConfinement(t)
	b := setup(t)
	beside := filepath.Join(b.dir, "beside")
	for name, text := range map[string]string{"beside/kept": "kept", "script/check.sh": "#!/bin/sh\ncat $1\n", "work/own": "own"} {
		b.write(name, text)
	}
	if err := os.Chmod(filepath.Join(b.dir, "script/check.sh"), 0o755); err != nil {
		t.Fatal(err)
	}

	script := func(text string) []string { return []string{"sh", "-c", text} }
	for what, c := range map[string]struct {
		condition plan.Condition
		say       string
	}{
		"its agent's folder":     {plan.Condition{Command: script("cat own")}, "exit 0: own"},
		"which it cannot change": {plan.Condition{Command: script("{ echo x >>made; } 2>/dev/null || echo refused")}, "exit 0: refused"},
		"unless it is granted":   {plan.Condition{Command: script("echo x >made && cat made"), Write: true}, "exit 0: x"},
		"no other folder":        {plan.Condition{Command: script("cat " + beside + "/kept 2>/dev/null || echo refused")}, "exit 0: refused"},
		"one that is named":      {plan.Condition{Command: []string{"ls", beside}}, "exit 0: kept"},
		"one that is granted":    {plan.Condition{Command: script("cat " + beside + "/kept"), Read: []string{beside}}, "exit 0: kept"},
		"a script of its owner":  {plan.Condition{Command: []string{filepath.Join(b.dir, "script/check.sh"), filepath.Join(beside, "kept")}}, "exit 0: kept"},
		"unconfined":             {plan.Condition{Command: script("echo x >../beside/new && cat ../beside/new"), Unconfined: "a test", Read: []string{filepath.Join(b.dir, "work")}}, "exit 0: x"},
	} {
		if _, events := b.gated(c.condition); len(events) != 1 || events[0].Value != c.say {
			t.Errorf("%s: %+v", what, events)
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "work/made")); err != nil {
		t.Error("what it was granted to write is not there")
	}
}

// TestConditionFollowsNoLinkOfAgents checks that the path in a condition allows its command to read
// the target. A link below the agent's folder gives no access, because the agent may have made it.
// Links of the owner are followed.
func TestConditionFollowsNoLinkOfAgents(t *testing.T) {
	t.Parallel()
	needShell(t)
	needConfinement(t)
	b := setup(t)
	work, beside := filepath.Join(b.dir, "work"), filepath.Join(b.dir, "beside")
	b.write("beside/kept", "kept")
	b.write("work/own", "own")
	if err := errors.Join(os.Symlink(beside, filepath.Join(work, "link")), os.Symlink(filepath.Join(beside, "kept"), filepath.Join(work, "file")), os.Symlink(beside, filepath.Join(b.dir, "owners"))); err != nil {
		t.Fatal(err)
	}

	b.plan.Boundary = nofollow.NewBoundary(work)
	// On tier A, a path without a grant does not exist. On tier B, it cannot be read.
	refused := func(said string) bool {
		return strings.HasSuffix(said, "No such file or directory") || strings.Contains(said, "Permission denied")
	}
	for path, want := range map[string]string{"work/link/kept": "", "work/file": "", "work/own": "exit 0: own", "owners/kept": "exit 0: kept"} {
		_, events := b.gated(plan.Condition{Command: []string{"cat", filepath.Join(b.dir, path)}})
		if len(events) != 1 || want != "" && events[0].Value != want || want == "" && !refused(events[0].Value) {
			t.Errorf("%s: %+v", path, events)
		}
	}
}

// TestConditionInPlantedRepository checks that git in a condition cannot access anything outside
// the agent's folder, even if the agent has configured programs for git.
func TestConditionInPlantedRepository(t *testing.T) {
	t.Parallel()
	needShell(t)
	needConfinement(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}

	b := setup(t)
	canary := filepath.Join(t.TempDir(), "canary")
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "objects/x": "", "refs/x": "",
		"config": "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = \"touch " + canary + "; touch ran 2>/dev/null;:\"\n"} {
		b.write("work/"+name, text)
	}

	for _, write := range []bool{false, true} {
		if _, events := b.gated(plan.Condition{Command: []string{"git", "status"}, Write: write}); len(events) != 1 || events[0].Error != "" {
			t.Errorf("%+v", events)
		}
		if _, err := os.Stat(canary); err == nil {
			t.Fatal("the condition ran a program of the agent's beyond its folder")
		}
	}
}

// write creates a file and its folders in the folder of the test.
func (b *bench) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		b.t.Fatal(err)
	}
}

// TestRunnerRecovers checks that a repository that a command of a dead process made is disarmed and
// recorded before any program runs.
func TestRunnerRecovers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	work := filepath.Join(b.dir, "work")
	b.write("work/sub/.git/config", "[core]\n")
	b.write("commands/rouse-command-1/before.json", fmt.Sprintf(`{"roots":[%q],"owners":[]}`, work))

	if _, err := agent.New(agent.Options{Ledger: b.ledger, Databases: b.pool, Manifests: filepath.Join(b.dir, "manifests"), Scratch: filepath.Join(b.dir, "commands")}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(b.dir, "commands")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(work, "sub/.git")); err == nil {
		t.Error("the repository is in use")
	}

	events, err := b.ledger.Events.List(t.Context(), event.Filter{})
	if err != nil || !slices.ContainsFunc(events, func(e ledger.Event) bool {
		return e.Kind == "git.disarmed" && strings.Contains(string(e.Data), filepath.Join("sub", ".git"))
	}) {
		t.Errorf("%+v %v", events, err)
	}
}
