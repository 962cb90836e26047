//go:build unix

package agent

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// commandNames are the variables that a condition's command is given.
var commandNames = []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR"}

// ownGroup puts a command into a process group of its own, so that what it starts can be ended with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends a command with all that it has started.
func killGroup(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
