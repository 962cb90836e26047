package homedir_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/homedir"
)

// staleSocket creates a home with a service and the socket file of a killed daemon.
func staleSocket(t *testing.T) (home string) {
	t.Helper()
	home = t.TempDir()
	l, err := net.Listen("unix", homedir.SocketPath(home))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	err = os.WriteFile(filepath.Join(home, "service.json"), []byte(`{"name":"rouse"}`), 0o600)
	if err := errors.Join(err, l.Close(), os.Chmod(homedir.SocketPath(home), 0o600)); err != nil {
		t.Fatal(err)
	}
	return home
}

// TestConnectRetries checks that a command reaches a daemon that restarts while the command
// connects.
func TestConnectRetries(t *testing.T) {
	t.Parallel()
	home := staleSocket(t)
	done := make(chan error, 1)
	go func() {
		_, st, err := homedir.Connect(t.Context(), home)
		if err == nil && st.PID != 7 {
			err = errors.New("another process answered")
		}
		done <- err
	}()

	l, err := net.Listen("unix", homedir.SocketPath(home)+".new")
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(homedir.SocketPath(home)+".new", 0o600), os.Rename(homedir.SocketPath(home)+".new", homedir.SocketPath(home))); err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"pid":7}`)) })}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestConnectRemovesAStaleSocket checks that only the first command waits if the daemon does not
// return. That command removes the socket file unless another process holds the home.
func TestConnectRemovesAStaleSocket(t *testing.T) {
	t.Parallel()
	home := staleSocket(t)
	held, err := homedir.Open(home, homedir.Holder{})
	if err != nil {
		t.Fatal(err)
	}
	for _, free := range []bool{false, true} {
		if free {
			if err := held.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := homedir.Connect(t.Context(), home); !errors.Is(err, api.ErrNoDaemon) {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(home, "rouse.sock")); errors.Is(err, os.ErrNotExist) != free {
			t.Errorf("home is free: %v, socket: %v", free, err)
		}
	}
}
