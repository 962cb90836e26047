package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestServeUnread checks that a full log pipe without a reader does not block runs. The log is
// complete once it is read.
func TestServeUnread(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
log: {level: debug}
agents: [{name: clerk}]
jobs: [{name: j, agent: clerk, playbook: [{call: complete, with: {summary: nobody read what was logged meanwhile}}]}]
`}), "rouse.yaml")

	reader, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	size, err := unix.FcntlInt(pipe.Fd(), unix.F_SETPIPE_SZ, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.Write(bytes.Repeat([]byte("\n"), size)); err != nil {
		t.Fatal(err)
	}

	p := endtoend.Rouse(t, "serve", "--config", config)
	p.Stderr = pipe
	p.UntilReady(t)
	if err := pipe.Close(); err != nil { // only the daemon keeps it open
		t.Fatal(err)
	}
	endtoend.MustRun(t, "run", "j", "--wait", "--config", config)

	log := make(chan []byte, 1)
	go func() {
		all, err := io.ReadAll(reader)
		if err != nil {
			t.Error(err)
		}
		log <- all
	}()
	p.Stop(t)
	if all := <-log; !bytes.Contains(all, []byte("run finished")) {
		t.Errorf("the log is %s", bytes.TrimSpace(all))
	}
}
