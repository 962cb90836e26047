package main

import (
	"bufio"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// openTerminal opens a terminal. The test must close its, the daemon's side.
func openTerminal(t *testing.T) (ours, its *os.File) {
	t.Helper()
	ours, its = cmdtest.Terminal(t)

	t.Cleanup(func() { ours.Close() })
	return ours, its
}

// TestHangup checks SIGHUP. It makes a daemon reload its configuration, also on a terminal. If the
// terminal is closed, the daemon ends as with Ctrl-C.
func TestHangup(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: clerk}]\n"})
	ours, its := openTerminal(t)

	// The test must not inherit the ignored SIGHUP of nohup. Child processes get the default action
	// for a signal that this process handles.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(handled) })

	p := endtoend.Rouse(t, "serve", "--config", filepath.Join(dir, "rouse.yaml"))
	log := &cmdtest.Log{}
	p.Stdin, p.Stdout, p.Stderr = its, nil, log
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}

	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "ready ") {
	}

	for i := range 2 {
		if err := p.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		cmdtest.Until(t, "another reading", func() bool { return strings.Count(log.String(), "the configuration was read again") == i+1 })
	}

	if err := errors.Join(its.Close(), ours.Close()); err != nil {
		t.Fatal(err)
	}

	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if err := p.Wait(); err != nil || last != "stopped" {
		t.Errorf("%v after %q: %s", err, last, log)
	}
}
