//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Child is the first line of main, and of TestMain where a test starts commands: in a process
// that keeps a command, it does so and does not return; in any other, it returns at once.
func Child() {
	if len(os.Args) != 2 || os.Args[1] != supervisorArg {
		return
	}

	runtime.LockOSThread() // so that the thread that is confined is another one
	reports := json.NewEncoder(os.NewFile(reportFD, "report"))
	r, err := supervise(reports)
	if err != nil {
		r = failureReport(err)
	}

	_ = reports.Encode(r) // nobody is there to read it when this fails
	unix.Exit(0)          // not os.Exit, which sleeps for a second in a binary with the race detector
}

func failureReport(err error) report {
	r := report{Failed: err.Error()}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		r.Errno = int(errno)
	}

	if errors.Is(err, exec.ErrNotFound) {
		r.Errno = int(unix.ENOENT)
	}
	return r
}

// supervise starts the command, and waits until it has ended and nothing that it started is left.
func supervise(reports *json.Encoder) (report, error) {
	if err := unix.CloseRange(3, 1<<31, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return report{}, os.NewSyscallError("close_range", err)
	}

	var s launchSpec
	if err := json.NewDecoder(os.NewFile(launchSpecFD, "stage")).Decode(&s); err != nil {
		return report{}, fmt.Errorf("the stage is damaged: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return report{}, os.NewSyscallError("prctl", err)
	}

	// Where memory is short, the kernel ends commands before the daemon.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0); err != nil {
		return report{}, err
	}

	// From here on /proc/self is root's alone.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return report{}, os.NewSyscallError("prctl", err)
	}

	started := make(chan error, 1)
	var pid int
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		var err error
		pid, err = s.startCommand(reports)
		started <- err
	}()
	if err := <-started; err != nil {
		return report{}, err
	}

	go s.serveControl(pid)
	r := waitForCommand(pid)
	killDescendants()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &used); err == nil {
		r.CPU, r.MaxRSS = used.Utime.Nano()+used.Stime.Nano(), used.Maxrss<<10
	}

	return r, nil
}

// serveControl asks the command to end when it is told so, and ends everything when the other end is gone.
func (s launchSpec) serveControl(pid int) {
	control := os.NewFile(controlFD, "control")
	var b [1]byte
	for {
		if n, err := control.Read(b[:]); n == 0 || err != nil {
			killDescendants()
			if s.Temp != "" {
				_ = os.RemoveAll(s.Temp) // which the daemon cannot any more, if it was killed
			}
			unix.Exit(0)
		}
		_ = unix.Kill(-pid, unix.SIGTERM) // it may have ended by now
	}
}

// waitForCommand reaps whoever ends, until the command itself does.
func waitForCommand(pid int) report {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // obey ended it, and saw its end
			return report{Ended: true, Exit: -1, Signal: int(unix.SIGKILL)}
		case got == pid && status.Signaled():
			return report{Ended: true, Exit: -1, Signal: int(status.Signal())}
		case got == pid && status.Exited():
			return report{Ended: true, Exit: status.ExitStatus()}
		}
	}
}

// killDescendants leaves nothing alive. The first process of a namespace can end all others of it
// at once; elsewhere they are stopped first, for what is stopped cannot get away by forking.
func killDescendants() {
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, unix.SIGKILL) // ESRCH: there is none
		for reap() {
		}
		return
	}

	stopped := map[int]bool{}
	for fresh := true; fresh; {
		fresh = false
		for _, p := range descendantsOf(os.Getpid()) {
			if !stopped[p.pid] {
				stopped[p.pid], fresh = true, true
				_ = unix.Kill(p.pid, unix.SIGSTOP)
			}
		}
	}

	for {
		for _, p := range descendantsOf(os.Getpid()) {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
		if !reap() {
			return
		}
	}
}

// reap waits for the end of one child, and takes all that have ended besides. There may be none left.
func reap() (more bool) {
	options := 0
	for {
		got, err := unix.Wait4(-1, nil, options, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false
		case got == 0:
			return true
		default:
			options = unix.WNOHANG
		}
	}
}

// startCommand confines the calling thread for good, and starts the command from it. Each step needs
// what the next one takes away.
func (s launchSpec) startCommand(reports *json.Encoder) (pid int, err error) {
	path, err := lookPath(s.Argv[0], s.Dir, s.Env)
	if err != nil {
		return 0, err
	}

	ruleset := -1
	if s.confined() {
		if ruleset, err = newRuleset(s.Rules, s.Network); err != nil {
			return 0, err
		}
	}
	if err := lowerPriority(); err != nil {
		return 0, err
	}

	restore, err := s.setLimits()
	if err != nil {
		return 0, err
	}
	defer restore()

	if s.confined() {
		if err := s.confineThread(ruleset); err != nil {
			return 0, err
		}
	}

	if err := reports.Encode(report{}); err != nil {
		return 0, err
	}

	pid, err = syscall.ForkExec(path, s.Argv, &syscall.ProcAttr{
		Dir: s.Dir, Env: s.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return 0, fmt.Errorf("%s in %s: %w", path, s.Dir, err)
	}

	return pid, nil
}

func (s launchSpec) confined() bool { return s.Tier.AtLeast(TierB) }

// confineThread takes from the calling thread what the command must not have, and looks whether that held.
func (s launchSpec) confineThread(ruleset int) error {
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if err := restrictThread(ruleset); err != nil {
		return err
	}

	if err := installFilter(newFilter(s.Tier, s.Network)); err != nil {
		return err
	}

	for _, path := range s.Canary {
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Close(fd)
			return fmt.Errorf("a file outside could be read: %s", path)
		}
	}

	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd)
		return errors.New("a socket could be made")
	}

	return nil
}

// lookPath finds a program as the command's own shell would, but never in the folder it runs in.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}

	var path string
	for _, setting := range env {
		if value, ok := strings.CutPrefix(setting, "PATH="); ok {
			path = value
		}
	}

	denied := error(nil)
	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			continue
		}

		found := filepath.Join(folder, name)
		info, err := os.Stat(found)
		switch {
		case err != nil || info.IsDir():
		case info.Mode()&0o111 == 0:
			denied = fmt.Errorf("%s: %w", found, unix.EACCES)
		default:
			return found, nil
		}
	}
	if denied != nil {
		return "", denied
	}

	return "", fmt.Errorf("no folder of the command's PATH (%q) that it can see has a program %s: %w", path, name, exec.ErrNotFound)
}

// lowerPriority lets other programs go before what this thread starts. Who was told to be nicer stays so,
// since it may not be less.
func lowerPriority() error {
	left, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 less the nice value
	if err != nil {
		return os.NewSyscallError("getpriority", err)
	}
	return os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 0, max(20-left, 5)))
}
