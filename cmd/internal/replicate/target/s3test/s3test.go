// Package s3test starts a real S3 server (versitygw on a directory) for tests.
package s3test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Credentials that the server accepts.
const (
	Access = "rouse-tests"
	Secret = "not-a-secret-of-anybody"
)

// Server is an S3 server that runs until the test ends.
type Server struct {
	URL                    string
	program, address, root string
	cmd                    *exec.Cmd
}

// Start starts a server with a bucket. It skips the test if ROUSE_TEST_S3 is not set.
func Start(t testing.TB, bucket string) *Server {
	t.Helper()
	program := os.Getenv("ROUSE_TEST_S3")
	if program == "" {
		t.Skip("set ROUSE_TEST_S3 to the program versitygw: go install github.com/versity/versitygw/cmd/versitygw@v1.8.0")
	}

	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, bucket), 0o700); err != nil {
		t.Fatal(err)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	s := &Server{URL: "http://" + address, program: program, address: address, root: root}
	t.Cleanup(s.Stop)
	s.Restart(t)
	return s
}

// Restart starts a stopped server again, at the same address and with the same data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.cmd = exec.Command(s.program, "--port", s.address, "posix", s.root)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+Access, "ROOT_SECRET_KEY="+Secret)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	for range 200 {
		if conn, err := net.Dial("tcp", s.address); err == nil {
			_ = conn.Close() // the server is listening
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the S3 server does not listen")
}

// Stop kills the server.
func (s *Server) Stop() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill() // the process may have ended
	_ = s.cmd.Wait()
}
