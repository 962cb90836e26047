//go:build unix

package install

import (
	"os"
	"os/exec"
	"syscall"
)

// endGroup has the end of a command's context end the programs that it started, too: git receives in one of those.
func endGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
			return os.ErrProcessDone // there is no such group any more
		}
		return nil
	}
}
