//go:build unix

package tool_test

import (
	"strings"
	"syscall"
	"testing"
)

// TestPipe checks that a pipe is refused, because opening a pipe without a writer would block a
// call forever.
func TestPipe(t *testing.T) {
	y := newYard(t)
	if err := syscall.Mkfifo(y.at("work/pipe"), 0o600); err != nil {
		t.Skip("pipes cannot be made here")
	}
	if _, err := read(y.roots, "pipe"); err == nil || !strings.Contains(err.Error(), "neither a file nor a folder") {
		t.Errorf("a pipe was opened: %v", err)
	}
}
