package main

import (
	"strings"
	"testing"

	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/homedir"
)

// TestDaemonDoesNotAnswer checks the error of a command if the daemon does not answer.
func TestDaemonDoesNotAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	home, err := homedir.Open(dir, homedir.Holder{PID: 4711, Daemon: true})
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()

	p := endtoend.Rouse(t, "runs", "--home", dir)
	if err := p.Run(); err == nil || !strings.Contains(p.Err.String(), "(process 4711) does not answer") || !strings.Contains(p.Err.String(), "has reached its limit of open files") {
		t.Errorf("%v: %s", err, p.Err.String())
	}
}
