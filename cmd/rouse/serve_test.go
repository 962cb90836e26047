package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/homedir"
)

// TestServeWaitsForTheHome checks a daemon that starts while a command or a killed daemon still
// holds the home. It must wait and not fail, because a service manager may not start it again.
func TestServeWaitsForTheHome(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\n"})
	h, err := homedir.Open(filepath.Join(dir, "home"), homedir.Holder{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}

	// The socket of a killed process accepts connections for a moment, but no process answers.
	gone, err := net.Listen("unix", homedir.SocketPath(h.Dir))
	if err != nil {
		t.Fatal(err)
	}

	go func() {
		for conn, err := gone.Accept(); err == nil; conn, err = gone.Accept() {
			conn.Close()
		}
	}()

	time.AfterFunc(time.Second, func() {
		if err := errors.Join(gone.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})

	endtoend.Serve(t, filepath.Join(dir, "rouse.yaml")).Stop(t)
}

// TestSecondDaemon checks that a second daemon on the same home names the first one.
func TestSecondDaemon(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\n"}), "rouse.yaml")
	p := endtoend.Serve(t, config)
	second := endtoend.Rouse(t, "serve", "--config", config)
	if err := second.Run(); err == nil || !strings.Contains(second.Err.String(), "process "+strconv.Itoa(p.Process.Pid)) {
		t.Errorf("%v: %s", err, second.Err.String())
	}

	var st api.Status
	endtoend.RunJSON(t, &st, "status", "--json", "--wait", "10s", "--config", config)
	if st.PID != p.Process.Pid || !st.Ready {
		t.Errorf("status: %+v", st)
	}

	p.Stop(t)
}
