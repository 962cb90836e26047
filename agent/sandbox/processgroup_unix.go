//go:build unix && !(linux && (amd64 || arm64))

package sandbox

import (
	"context"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// startPlain starts a command in its own process group. A process that leaves the group is not
// killed.
func startPlain(ctx context.Context, t Tier, argv []string, dir string, c Command) (Result, error) {
	cmd := &exec.Cmd{Path: argv[0], Args: argv, Dir: dir, Env: c.Env, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would mean the daemon's environment
	}

	res, err := runToEnd(ctx, cmd, &processGroup{}, c)
	if err != nil {
		return Result{}, &StartError{Argv0: c.Argv[0], Tier: t, Err: err}
	}

	res.Tier = t
	return res, nil
}

// processGroup controls the processes of a command as one process group.
type processGroup struct{ group int }

func (k *processGroup) started(p *os.Process) error { k.group = p.Pid; return nil }
func (k *processGroup) terminate()                  { _ = unix.Kill(-k.group, unix.SIGTERM) }
func (k *processGroup) kill()                       { _ = unix.Kill(-k.group, unix.SIGKILL) }
func (k *processGroup) usage() usage                { return usage{} }

func (k *processGroup) result(state *os.ProcessState) (Result, error) {
	signal := ""
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		signal = unix.SignalName(status.Signal())
	}

	res := plainResult(state, signal)
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		res.MaxRSS = maxRSS(usage)
	}
	return res, nil
}
