package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/internal/domain"
)

func needShell(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
}

// A program's exit code decides. It knows little of the daemon, and is in the agent's folder.
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
		{script("kill -9 $$"), domain.OutcomeError, "it was ended from outside (signal: killed)"},
		{[]string{"rouse-no-such-program"}, domain.OutcomeError, `there is no program "rouse-no-such-program" on the daemon's PATH; install it, or give its path`},
		{[]string{filepath.Join(b.dir, "none.sh")}, domain.OutcomeError, "none.sh does not exist"},
		{[]string{b.dir}, domain.OutcomeError, "may not be executed"},
	} {
		res, events := b.gated(agent.Condition{Command: c.argv})
		text := res.Error
		if c.outcome == domain.OutcomeSuccess && len(events) == 1 {
			text = events[0].Value
		}
		if res.Outcome != c.outcome || !strings.Contains(text, c.say) {
			t.Errorf("%q: %+v, %+v", c.argv, res, events)
		}
	}

	if res, _ := b.gated(agent.Condition{Command: script("exit 3"), Not: true}); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}
	if res, _ := b.gated(agent.Condition{Command: []string{"rouse-no-such-program"}, Not: true}); res.Outcome != domain.OutcomeError {
		t.Errorf("what cannot be checked is not true either: %+v", res)
	}
}

// Whatever a command writes, one short line of plain text is kept of it, without secrets.
func TestHostileOutput(t *testing.T) {
	t.Parallel()
	needShell(t)
	b := setup(t)
	for what, c := range map[string]struct{ script, want string }{
		"a flood":       {"yes rouse | head -c 10000000; exit 1", "exit 1: rouse"},
		"one long line": {"head -c 10000000 /dev/zero | tr '\\0' x; exit 1", "exit 1: " + strings.Repeat("x", 191) + "…"},
		"lines":         {"printf 'one\\r\\ntwo\\nthree'; exit 1", "exit 1: one"},
		"colour":        {"printf '\\033[1;31mFAIL\\033[0m \\033]0;title\\007it\\n'; exit 1", "exit 1: FAIL it"},
		"control":       {"printf 'a\\tb\\000c\\010\\302\\233d\\n'; exit 1", "exit 1: a b\uFFFDc\uFFFD\uFFFDd"},
		"direction":     {"printf 'a\\342\\200\\256b\\n'; exit 1", "exit 1: a\uFFFDb"},
		"not UTF-8":     {"printf '\\377\\376 caf\\351 \\303\\251\\n'; exit 1", "exit 1: \uFFFD caf\uFFFD é"},
		"a secret":      {"echo key sk-canary-and-more; exit 1", "exit 1: key [secret]"},
		"a torn secret": {"printf 'sk-\\033[0mcanary\\n'; exit 1", "exit 1: [secret]"},
	} {
		res, events := b.gated(agent.Condition{Command: []string{"sh", "-c", c.script}})
		if res.Outcome != domain.OutcomeSkipped || len(events) != 1 || events[0].Value != c.want || !strings.Contains(res.Error, "gave "+c.want+" (") {
			t.Errorf("%s: %+q, %+v", what, fmt.Sprint(events), res)
		}
	}

	_, events := b.gated(agent.Condition{SQL: "select 'sk-canary' || char(10) || char(27) || '[31m' || 'x'", Not: true})
	if len(events) != 1 || events[0].Value != `"[secret]\n\x1b[31mx"` {
		t.Errorf("%+v", events)
	}
}

// A command that does not end is ended, with all that it has started; one that ends and
// leaves somebody behind is not waited for.
func TestCommandsThatLinger(t *testing.T) {
	t.Parallel()
	needShell(t)
	b := setup(t)
	alive := func(name string) bool {
		raw, err := os.ReadFile(filepath.Join(b.dir, "work", name))
		if err != nil {
			t.Fatal(err)
		}
		return exec.CommandContext(t.Context(), "sh", "-c", "kill -0 "+strings.TrimSpace(string(raw))+" 2>/dev/null && ! grep -q '^State:.Z' /proc/"+strings.TrimSpace(string(raw))+"/status 2>/dev/null").Run() == nil
	}

	begin := time.Now()
	res, _ := b.gated(agent.Condition{Command: []string{"sh", "-c", "sleep 1000 & echo $! >pid1; trap '' TERM; wait"}, Timeout: 300 * time.Millisecond})
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "it took longer than 300ms and was stopped") {
		t.Errorf("%+v", res)
	}

	res, events := b.gated(agent.Condition{Command: []string{"sh", "-c", "sleep 1000 & echo $! >pid2; echo started"}})
	if res.Outcome != domain.OutcomeSuccess || events[0].Value != "exit 0: started" {
		t.Errorf("%+v, %+v", res, events)
	}

	res, events = b.gated(agent.Condition{Command: []string{"sh", "-c", "sleep 1000 & echo $! >pid3; exit 4"}})
	if res.Outcome != domain.OutcomeSkipped || events[0].Value != "exit 4" {
		t.Errorf("%+v, %+v", res, events)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}

	for _, name := range []string{"pid1", "pid2", "pid3"} {
		for i := 0; alive(name); i++ {
			if i > 50 {
				t.Fatalf("the process of %s lives on", name)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}
