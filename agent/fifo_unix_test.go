//go:build unix

package agent_test

import (
	"os"
	"syscall"
	"testing"
)

// mkfifo replaces a file by a pipe. Opening the pipe blocks forever.
func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
