package shell_test

import (
	"strings"
	"testing"

	"rouse/agent/tool"
)

// TestMustSucceed: OSA-37, with must_succeed a failing program fails the call. The failure has the
// exit code, the end of the output and the whole result. The argument must_succeed overrides the
// default of the caller.
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

// TestRefusedBySandbox checks that a confined program that fails with a refused access gets a hint
// with the required setting, in the result and in the failure.
func TestRefusedBySandbox(t *testing.T) {
	t.Parallel()
	b := newBench(t).confined()
	const outside = "/srv/rouse-test/in/a.csv"
	for _, c := range []struct{ command, hint string }{
		{b.me + " as refused cp: cannot create regular file: Permission denied", "grants: {read: [PATH]}, or to let it write there grants: {write: [" + b.dir + ", FOLDER]}"},
		{b.me + " as refused sh: 1: cannot create " + outside + ": Read-only file system", "grants: {read: [" + outside + "]}, or to let it write there grants: {write: [" + b.dir + ", /srv/rouse-test/in]}"},
		{b.me + ` as refused "cat: '/srv/a b': Permission denied"`, "grants: {read: [/srv/a b]}"},
		{b.me + " as refused /bin/mv: cannot move /bin/x to /usr/bin/y: Operation not permitted", "add to the agent grants: {write: [" + b.dir + ", /usr/bin]}"},
		{b.me + " as refused open " + outside + ": no such file or directory", "grants: {read: [" + outside + "]}"},
		{"cat " + outside, "grants: {read: [" + outside + "]}"}, // refused by the sandbox
		{b.me + " as refused /bin/sh: line 1: x: Permission denied", "grants: {read: [PATH]}"},
		{b.me + " as refused touch: cannot touch x: Read-only file system", "add to the agent grants: {write: [" + b.dir + ", FOLDER]}"},
		{b.me + " as refused sh: " + b.dir + "/x: Permission denied", ""}, // writable by a grant
		{b.me + " as refused open /tmp/x: no such file or directory", ""},
		{b.me + " as refused open " + b.dir + "/x: no such file or directory", ""},
		{b.me + " as refused open x: no such file or directory", ""},
		{b.me + " as fail", ""},
	} {
		e, _ := b.call("shell_run", map[string]any{"command": c.command})
		must, _ := b.call("shell_run", map[string]any{"command": c.command, "must_succeed": true})
		for _, said := range []string{strings.Join(e.Warnings, "\n"), must.Message} {
			if got := strings.Contains(said, "the sandbox (tier "); got != (c.hint != "") || !strings.Contains(said, c.hint) {
				t.Errorf("%s: %q", c.command, said)
			}
		}
	}
}
