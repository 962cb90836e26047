package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/daemon"
)

// systemdStore keeps sockets and reads messages as systemd does for a service.
type systemdStore struct {
	t       *testing.T
	address string

	mu    sync.Mutex
	said  []string
	names []string
	files map[string]*os.File
}

func newSystemdStore(t *testing.T) *systemdStore {
	t.Helper()
	s := &systemdStore{t: t, address: filepath.Join(t.TempDir(), "notify"), files: map[string]*os.File{}}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go s.read(conn)
	return s
}

func (s *systemdStore) read(conn *net.UnixConn) {
	for {
		text, rights := make([]byte, 8192), make([]byte, 1024)
		n, oob, _, _, err := conn.ReadMsgUnix(text, rights)
		if err != nil {
			return
		}
		messages, _ := syscall.ParseSocketControlMessage(rights[:oob])
		s.mu.Lock()
		s.said = append(s.said, string(text[:n]))
		_, name, _ := strings.Cut(string(text[:n]), "FDNAME=")
		name, _, _ = strings.Cut(name, "\n")
		for _, m := range messages {
			fds, _ := syscall.ParseUnixRights(&m)
			for _, fd := range fds {
				s.put(name, os.NewFile(uintptr(fd), name))
			}
		}
		if strings.HasPrefix(string(text[:n]), "FDSTOREREMOVE=1") {
			s.remove(name)
		}
		s.mu.Unlock()
	}
}

func (s *systemdStore) put(name string, f *os.File) {
	s.names = append(s.names, name)
	s.files[name] = f
}

func (s *systemdStore) remove(name string) {
	if f := s.files[name]; f != nil {
		f.Close()
	}
	delete(s.files, name)
	for i, n := range s.names {
		if n == name {
			s.names = append(s.names[:i:i], s.names[i+1:]...)
			break
		}
	}
}

func (s *systemdStore) stored() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.names...)
}

// heard says whether a message with these beginnings came.
func (s *systemdStore) heard(begins string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.said {
		if strings.HasPrefix(m, begins) {
			return true
		}
	}
	return false
}

// copied is a copy of what is kept under a name: a daemon may have the store close its own while it is still being started here. The
// lock is held.
func (s *systemdStore) copied(name string) *os.File {
	s.t.Helper()
	fd, err := syscall.Dup(int(s.files[name].Fd()))
	if err != nil {
		s.t.Error(err)
		return nil
	}
	return os.NewFile(uintptr(fd), name)
}

// serve starts a daemon as systemd would: with what it has kept, told to that process alone.
func (s *systemdStore) serve(config string) *program {
	s.t.Helper()
	p := rouse(s.t, "serve", "--config", config)
	s.mu.Lock()
	s.said = nil
	p.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ WATCHDOG_PID=$$ exec "$0" "$@"`, p.Path}, p.Args[1:]...)
	p.Path = "/bin/sh"
	p.Env = append(p.Env, "NOTIFY_SOCKET="+s.address, "WATCHDOG_USEC=180000000")
	if len(s.names) > 0 {
		p.Env = append(p.Env, "LISTEN_FDS="+strconv.Itoa(len(s.names)), "LISTEN_FDNAMES="+strings.Join(s.names, ":"))
	}
	for _, name := range s.names {
		f := s.copied(name)
		defer f.Close()
		p.ExtraFiles = append(p.ExtraFiles, f)
	}
	s.mu.Unlock()

	p.untilReady(s.t)
	cmdtest.Until(s.t, "READY=1", func() bool { return s.heard("READY=1\nSTATUS=serves 1 job") })
	return p
}

// ask sends n requests to the socket and to the network at once; the result is what became of those that failed.
func ask(home, address string, n int) (failed func() []string) {
	var all sync.WaitGroup
	var mu sync.Mutex
	var out []string
	note := func(where string, err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			out = append(out, where+": "+err.Error())
		}
	}

	overSocket := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", daemon.SocketPath(home))
	}}
	for range n {
		all.Go(func() {
			_, err := get(&http.Client{Transport: overSocket, Timeout: cmdtest.Patience}, "http://rouse/v1/status", http.StatusOK)
			note("socket", err)
		})
		all.Go(func() {
			_, err := get(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: cmdtest.Patience}, "http://"+address+"/", http.StatusUnauthorized)
			note("network", err)
		})
	}
	return func() []string { all.Wait(); return out }
}

func get(client *http.Client, url string, want int) (string, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != want {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}

// Who asks while the daemon is started again waits and is answered, at the socket and on the network, after a kill and over an
// orderly restart; and what is kept for another address, or for a socket that is no longer there, is refused with words.
func TestSocketsAreKept(t *testing.T) {
	t.Parallel()
	const text = "version: 1\nhome: ./home\nagents: [{name: a}]\njobs: [{name: j, agent: a, playbook: [{call: db_schema}]}]\n"
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": text})
	config, home := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "home")
	store := newSystemdStore(t)

	p := store.serve(config)
	if !strings.Contains(p.stdout.String(), "rouse dashboard") || strings.Contains(p.stdout.String(), "logs a browser in") {
		t.Errorf("a login link is in the log:\n%s", p.stdout.String())
	}
	var st api.Status
	runJSON(t, &st, "status", "--json", "--config", config)
	address := strings.TrimSuffix(strings.TrimPrefix(st.Dashboard, "http://"), "/")
	if kept := store.stored(); len(kept) != 2 {
		t.Fatalf("kept: %v", kept)
	}

	p.kill(t)
	failed := ask(home, address, 20)
	p = store.serve(config)
	if failed := failed(); len(failed) > 0 {
		t.Errorf("after a kill: %v", failed)
	}

	// All the time while it ends in order and is started again.
	var more []func() []string
	stopping := make(chan error, 1)
	go func() {
		err := p.Process.Signal(syscall.SIGTERM)
		if err == nil {
			err = p.Wait()
		}
		stopping <- err
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	for stopped := false; !stopped; {
		more = append(more, ask(home, address, 2))
		select {
		case err := <-stopping:
			if stopped = true; err != nil {
				t.Fatal(err, p.stderr.String())
			}
		case <-tick.C:
		}
	}
	tick.Stop()
	if !store.heard("STOPPING=1\n") || !store.heard("EXTEND_TIMEOUT_USEC=") {
		t.Error("the stop was not told")
	}
	p = store.serve(config)
	for _, failed := range more {
		if failed := failed(); len(failed) > 0 {
			t.Errorf("over a restart: %v", failed)
		}
	}
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the reload was told", func() bool { return store.heard("RELOADING=1\nMONOTONIC_USEC=") })
	p.kill(t)

	// A socket of another address, and one whose file was replaced.
	elsewhere, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := elsewhere.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere.Close()
	if err := os.Remove(daemon.SocketPath(home)); err != nil {
		t.Fatal(err)
	}
	store.mu.Lock()
	store.remove("dashboard")
	store.put("dashboard", f)
	store.mu.Unlock()

	p = store.serve(config)
	runJSON(t, &st, "status", "--json", "--config", config)
	if failed := ask(home, strings.TrimSuffix(strings.TrimPrefix(st.Dashboard, "http://"), "/"), 3)(); len(failed) > 0 || strings.Contains(st.Dashboard, "127.0.0.2") {
		t.Errorf("%v at %s", failed, st.Dashboard)
	}
	p.stop(t)
	for _, want := range []string{"listens on 127.0.0.2:", "it is no longer what leads there"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, p.stderr.String())
		}
	}

	// One that cannot start keeps nobody waiting.
	if err := os.WriteFile(config, []byte("version: 1\nhome: ./home\nnonsense: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bad := rouse(t, "serve", "--config", config)
	store.mu.Lock()
	bad.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, bad.Path}, bad.Args[1:]...)
	bad.Path = "/bin/sh"
	bad.Env = append(bad.Env, "NOTIFY_SOCKET="+store.address, "LISTEN_FDS="+strconv.Itoa(len(store.names)), "LISTEN_FDNAMES="+strings.Join(store.names, ":"))
	for _, name := range store.names {
		f := store.copied(name)
		defer f.Close()
		bad.ExtraFiles = append(bad.ExtraFiles, f)
	}
	store.mu.Unlock()
	if err := bad.Run(); err == nil {
		t.Fatal("it started")
	}
	cmdtest.Until(t, "nothing is kept", func() bool { return len(store.stored()) == 0 })
}
