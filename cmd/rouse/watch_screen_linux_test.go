package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// watched is a rouse watch on its own terminal.
type watched struct {
	*exec.Cmd
	ours, its *os.File
	shown     *cmdtest.Log
	before    *term.State
}

func watchOnTerminal(t *testing.T, config string) *watched {
	t.Helper()
	ours, its := cmdtest.Terminal(t)
	t.Cleanup(func() { ours.Close(); its.Close() })
	cmdtest.Resize(t, its, 30, 100)

	w := &watched{Cmd: endtoend.Rouse(t, "watch", "--config", config).Cmd, ours: ours, its: its, shown: &cmdtest.Log{}}
	var err error
	if w.before, err = term.GetState(int(its.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Env = append(w.Env, "TERM=xterm-256color", "NO_COLOR=")
	w.Stdin, w.Stdout, w.Stderr = its, its, its
	w.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := ours.Read(buf)
			if err != nil {
				return
			}
			_, _ = w.shown.Write(buf[:n])
		}
	}()
	return w
}

// frame returns the text of the last complete screen.
func (w *watched) frame() string {
	frames := strings.Split(w.shown.String(), ansi.CursorHomePosition)
	for i := len(frames) - 1; i >= 0; i-- {
		if whole, _, ok := strings.Cut(frames[i], ansi.EraseScreenBelow); ok && !strings.HasPrefix(frames[i], ansi.SetModeAltScreenSaveCursor) {
			return strings.ReplaceAll(ansi.Strip(whole), "\r", "")
		}
	}
	return ""
}

// press presses a key. It expects the program to exit without an error and to restore the terminal.
func (w *watched) press(t *testing.T, key string) {
	t.Helper()
	if _, err := w.ours.WriteString(key); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(); err != nil {
		t.Errorf("%q ended it with %v", key, err)
	}

	cmdtest.Until(t, "the screen that was there before", func() bool {
		return strings.HasSuffix(w.shown.String(), ansi.ShowCursor+ansi.ResetModeAltScreenSaveCursor)
	})
	after, err := term.GetState(int(w.its.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if *after != *w.before {
		t.Errorf("the terminal was %+v and is %+v", *w.before, *after)
	}
}

// TestWatchScreen checks that rouse watch shows upcoming, open and latest runs, reconnects to a
// restarted daemon, and restores the terminal.
func TestWatchScreen(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work}]
defaults: {notify: {on: []}}
jobs:
  - {name: report, agent: clerk, every: 100d, playbook: [{call: complete, with: {summary: "Wrote the report, and a file of figures with it."}}]}
  - {name: broken, agent: clerk, playbook: [{call: db_query, with: {sql: select nothing from nowhere}}]}
`}), "rouse.yaml")

	p := endtoend.Serve(t, config)
	w := watchOnTerminal(t, config)
	cmdtest.Until(t, "what comes", func() bool {
		return strings.Contains(w.frame(), "report  every") && strings.Contains(w.frame(), "nothing runs") && strings.Contains(w.frame(), "nothing has run yet")
	})

	endtoend.RunJSON(t, nil, "run", "report", "--wait", "--config", config)
	cmdtest.Until(t, "what was last", func() bool {
		return strings.Contains(w.frame(), "● success  1  report") && strings.Contains(w.frame(), "Wrote the report")
	})
	if !strings.Contains(w.shown.String(), "\x1b[32m● success") {
		t.Error("a success has no colour")
	}

	p.Stop(t)
	cmdtest.Until(t, "that the daemon is gone", func() bool { return strings.Contains(w.frame(), "the daemon has ended") })
	p = endtoend.Serve(t, config)
	defer p.Stop(t)
	cmdtest.Until(t, "the new daemon", func() bool { return strings.Contains(w.frame(), "served by process") })
	if err := endtoend.Rouse(t, "run", "broken", "--wait", "--config", config).Run(); err == nil {
		t.Error("a broken job succeeds")
	}
	cmdtest.Until(t, "the run of the new daemon", func() bool { return strings.Contains(w.frame(), "▲ error    2  broken") })

	// A resized terminal is redrawn.
	cmdtest.Resize(t, w.its, 6, 40)
	cmdtest.Until(t, "a small screen", func() bool {
		lines := strings.Split(w.frame(), "\n")
		return len(lines) == 6 && ansi.StringWidth(lines[0]) <= 40
	})
	w.press(t, "q")

	w = watchOnTerminal(t, config)
	cmdtest.Until(t, "a screen", func() bool { return w.frame() != "" })
	w.press(t, "\x03")
}

// TestWatchLines checks rouse watch without a terminal: it prints lines and ends with the daemon.
// Without a daemon it fails.
func TestWatchLines(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work}]
defaults: {notify: {on: []}}
jobs: [{name: report, agent: clerk, playbook: [{call: complete, with: {summary: "Wrote the report, and a file of figures with it."}}]}]
`}), "rouse.yaml")

	alone := endtoend.Rouse(t, "watch", "--config", config)
	if err := alone.Run(); err == nil || !strings.Contains(alone.Err.String(), "start one with: rouse serve") {
		t.Errorf("%v %s", err, alone.Err.String())
	}

	p := endtoend.Serve(t, config)
	lines := &cmdtest.Log{}
	w := endtoend.Rouse(t, "watch", "--config", config)
	w.Stdout = lines
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the events of a run", func() bool {
		endtoend.RunJSON(t, nil, "run", "report", "--wait", "--config", config)
		return strings.Contains(lines.String(), "run.finished")
	})
	p.Stop(t)
	if err := w.Wait(); err == nil || !strings.Contains(w.Err.String(), "ended") {
		t.Errorf("%v %s", err, w.Err.String())
	}
	if strings.Contains(lines.String(), "\x1b") {
		t.Errorf("what is piped has escape sequences: %q", lines.String())
	}
}
