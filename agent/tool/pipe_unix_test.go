//go:build unix

package tool_test

import (
	"strings"
	"syscall"
	"testing"
)

// A pipe without a writer would hold a call for ever.
func TestPipe(t *testing.T) {
	y := newYard(t)
	if err := syscall.Mkfifo(y.at("work/pipe"), 0o600); err != nil {
		t.Skip("pipes cannot be made here")
	}
	if _, err := read(y.roots, "pipe"); err == nil || !strings.Contains(err.Error(), "neither a file nor a folder") {
		t.Errorf("a pipe was opened: %v", err)
	}
}
