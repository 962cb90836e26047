package shell_test

import (
	"strings"
	"testing"

	"rouse/agent/tool"
)

// OSA-37: a program that fails is a failure of a call that must succeed, with its exit code, the end of what it wrote,
// and all of its result; whether a call must is its own word, or that of its surface.
func TestMustSucceed(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	const failed = ": exit 3, 2 lines; the last of them:\nout\nbad"
	for _, c := range []struct {
		surface bool
		tool    string
		args    map[string]any
		fails   bool
	}{
		{false, "shell_run", nil, false},
		{true, "shell_run", nil, true},
		{true, "shell_run", map[string]any{"must_succeed": false}, false},
		{false, "shell_run", map[string]any{"must_succeed": true}, true},
		{true, "bash", nil, true},
	} {
		b.in.MustSucceed = c.surface
		args := map[string]any{"command": b.me + " as fail"}
		for k, v := range c.args {
			args[k] = v
		}

		e, _ := b.call(c.tool, args)
		if e.OK == c.fails || c.fails && (e.Kind != tool.KindExecutionError || !strings.HasSuffix(e.Message, failed)) || !strings.Contains(string(e.Result), "bad") {
			t.Errorf("%+v: %+v", c, e)
		}
	}

	b.in.MustSucceed = true
	if e, got := b.call("shell_run", map[string]any{"command": b.me + " as argv x"}); !e.OK || got["exit_code"] != 0.0 {
		t.Errorf("a program that does not fail: %+v", e)
	}
	if e, _ := b.call("shell_run", map[string]any{"command": b.me + " as hang", "timeout": 1}); e.Kind != tool.KindTimeout || !strings.Contains(e.Message, "ended by idle timeout") {
		t.Errorf("one that hangs: %+v", e)
	}
}

// TestRefusedBySandbox: a confined program that fails with what a system says when it refuses something gets a hint that names the sandbox
// and the grant, in the result and in the failure.
func TestRefusedBySandbox(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	const hint = "the sandbox (tier "
	e, _ := b.call("shell_run", map[string]any{"command": b.me + " as refused"})
	if said := strings.Join(e.Warnings, "\n"); !strings.Contains(said, hint) || !strings.Contains(said, "grants: {write: [FOLDER]}") {
		t.Errorf("%+v", e)
	}
	e, _ = b.call("shell_run", map[string]any{"command": b.me + " as refused", "must_succeed": true})
	if e.OK || !strings.Contains(e.Message, hint) {
		t.Errorf("%+v", e)
	}
	if e, _ = b.call("shell_run", map[string]any{"command": b.me + " as fail"}); strings.Contains(strings.Join(e.Warnings, "\n"), hint) {
		t.Errorf("a failure of another kind: %+v", e)
	}
}
