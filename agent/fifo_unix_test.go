//go:build unix

package agent_test

import (
	"os"
	"syscall"
	"testing"
)

// mkfifo puts a pipe in the place of a file: who opens it waits for ever.
func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
