//go:build unix

package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"rouse/cmd/internal/homedir"
)

const (
	fullSocket = "ROUSE_TEST_FULL_SOCKET"
	fewFiles   = 64
)

// TestProcessWithoutFiles is the child process of TestFullProcessAnswers. It opens files up to its
// limit and answers on a socket.
func TestProcessWithoutFiles(t *testing.T) {
	path := os.Getenv(fullSocket)
	if path == "" {
		t.Skip("it is started by TestFullProcessAnswers")
	}
	limit, _ := maxOpenFiles()
	fmt.Println("limit", limit)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: fewFiles, Max: fewFiles}); err != nil {
		t.Fatal(err)
	}

	l, err := listen(path, filepath.Dir(path), false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var all []*os.File
	s := &server{listener: l, conns: map[net.Conn]http.ConnState{}}
	s.reserve(slog.New(slog.DiscardHandler))
	s.http = &http.Server{ConnState: s.noteState, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 4 { // as many files as a query of the ledger opens
			f, err := os.Open(os.DevNull)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			defer f.Close()
		}
	})}
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		all = append(all, f)
	}
	defer runtime.KeepAlive(all)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // wait for the end of the parent
		s.http.Close()
	}()
	fmt.Println("ready")
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// TestFullProcessAnswers checks that a process answers requests at its limit of open files and
// raises the soft limit at the start.
func TestFullProcessAnswers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := homedir.SocketPath(dir)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprintf(`ulimit -Sn %d; exec "$0" -test.run '^TestProcessWithoutFiles$'`, fewFiles), os.Args[0])
	child.Env = append(os.Environ(), fullSocket+"="+path)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer in.Close()

	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		if n, found := strings.CutPrefix(lines.Text(), "limit "); found {
			if limit, err := strconv.Atoi(n); err != nil || limit <= fewFiles {
				t.Errorf("it may have %s files open: the soft limit was not raised", n)
			}
		}
	}
	for i := range 100 { // connect both before and after the server notices the end of the previous connection
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
		res, err := client.Get("http://rouse/")
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusOK {
			t.Errorf("%d: %s", i, res.Status)
		}
		client.CloseIdleConnections()
	}
}
