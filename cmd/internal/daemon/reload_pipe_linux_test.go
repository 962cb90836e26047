package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A configuration from a pipe can be read only once.
func TestReloadOfAPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}

	go func() { _ = os.WriteFile(pipe, []byte(ReloadHead+Note("one")), 0o600) }()
	s := ServeIn(t, dir, "pipe.yaml")
	if got := s.Ask(); got.OK || !strings.Contains(got.Problems[0].Message, "cannot be read again") {
		t.Errorf("%+v", got)
	}
	if r := s.Finished(s.Fire("one")); r.Outcome != "success" || len(s.Status().ConfigProblems) > 0 {
		t.Errorf("%+v", r.Run)
	}
}
