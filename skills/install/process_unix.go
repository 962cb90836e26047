//go:build unix

package install

import (
	"os"
	"os/exec"
	"syscall"
)

// endGroup kills the command's subprocesses too when its context ends. Git receives data in a
// subprocess.
func endGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
			return os.ErrProcessDone // the process group no longer exists
		}
		return nil
	}
}
