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

// Child must be the first line of main, and of TestMain in packages with tests that start commands.
// In a supervisor process it supervises its command and does not return. In other processes it
// returns at once.
func Child() {
	if len(os.Args) != 2 || os.Args[1] != supervisorArg {
		return
	}

	runtime.LockOSThread() // so that the goroutine that confines its thread runs on another thread
	reports := json.NewEncoder(os.NewFile(reportFD, "report"))
	r, err := supervise(reports)
	if err != nil {
		r = failureReport(err)
	}

	_ = reports.Encode(r) // fails if the daemon is gone, which does not matter
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

// supervise starts the command, and waits until it and all processes that it started have ended.
func supervise(reports *json.Encoder) (report, error) {
	// The command may inherit only the three standard streams. This process keeps its files open.
	if err := unix.CloseRange(3, 1<<31, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return report{}, os.NewSyscallError("close_range", err)
	}

	var s launchSpec
	if err := json.NewDecoder(os.NewFile(launchSpecFD, "launch spec")).Decode(&s); err != nil {
		return report{}, fmt.Errorf("the launch spec is damaged: %w", err)
	}

	// Files created by a command have the user's permissions, as if the user had started it.
	unix.Umask(int(s.Umask))

	// Orphans of the command become children of this process instead of init, so that they can be
	// found and reaped.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return report{}, os.NewSyscallError("prctl", err)
	}

	// If memory is short, the kernel should kill commands before the daemon.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0); err != nil {
		return report{}, err
	}

	// The command runs as the same user. It cannot trace a process that is not dumpable, or read it
	// through /proc. This call must follow the write above, because /proc/self then belongs to
	// root.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return report{}, os.NewSyscallError("prctl", err)
	}

	started := make(chan error, 1)
	var pid int
	restore := func() {}
	go func() {
		runtime.LockOSThread() // never unlocked, so that the runtime ends the confined thread with its goroutine and does not reuse it
		var err error
		pid, restore, err = s.startCommand(reports)
		started <- err
	}()
	if err := <-started; err != nil {
		return report{}, err
	}

	restore() // from this thread, because the filter of the confined thread denies it

	go s.serveControl(pid)
	r := waitForCommand(pid)
	killDescendants()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &used); err == nil {
		r.CPU, r.MaxRSS = used.Utime.Nano()+used.Stime.Nano(), used.Maxrss<<10
	}

	return r, nil
}

// serveControl sends SIGTERM to the command for each byte from the daemon. It kills everything if
// the daemon has closed its end or is gone.
func (s launchSpec) serveControl(pid int) {
	control := os.NewFile(controlFD, "control")
	var b [1]byte
	for {
		if n, err := control.Read(b[:]); n == 0 || err != nil {
			killDescendants()
			if s.Temp != "" {
				_ = os.RemoveAll(s.Temp) // the daemon cannot remove it if it was killed
			}
			unix.Exit(0)
		}
		_ = unix.Kill(-pid, unix.SIGTERM) // the process group, because the command leads a session; it may already have ended
	}
}

// waitForCommand reaps all processes that end, until the command itself has ended.
func waitForCommand(pid int) report {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // no child remains, because serveControl has killed and reaped it
			return report{Ended: true, Exit: -1, Signal: int(unix.SIGKILL)}
		case got == pid && status.Signaled():
			return report{Ended: true, Exit: -1, Signal: int(status.Signal())}
		case got == pid && status.Exited():
			return report{Ended: true, Exit: status.ExitStatus()}
		}
	}
}

// killDescendants kills all descendants. Process 1 of a namespace can kill all other processes at
// once. Other supervisors first stop them until a listing shows no new ones, because a stopped
// process cannot fork after the listing.
func killDescendants() {
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, unix.SIGKILL) // ESRCH if there are no processes
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

// reap waits until one child has ended, and reaps all other children that have ended. It reports
// whether children may be left.
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
			options = unix.WNOHANG // blocks only for the first child
		}
	}
}

// startCommand permanently confines the calling thread, and starts the command from it. The order
// is required: the filter denies the calls for priority and limits. Landlock and the filter need
// no_new_privs.
func (s launchSpec) startCommand(reports *json.Encoder) (pid int, restore func(), err error) {
	fail := func(err error) (int, func(), error) { return 0, nil, err }
	path, err := lookPath(s.Argv[0], s.Dir, s.Env)
	if err != nil {
		return fail(err)
	}

	ruleset := -1
	if err := s.verify(); err != nil {
		return fail(err)
	}
	if s.confined() {
		if ruleset, err = newRuleset(s.Rules, s.Network); err != nil {
			return fail(err)
		}
		if s.Self {
			// By descriptor, because the file may have no path in this view.
			if err := addRuleAt(ruleset, selfFD, unix.LANDLOCK_ACCESS_FS_EXECUTE|unix.LANDLOCK_ACCESS_FS_READ_FILE); err != nil {
				return fail(fmt.Errorf("this program: %w", err))
			}
		}
	}
	if err := lowerPriority(); err != nil {
		return fail(err)
	}

	if restore, err = s.setLimits(); err != nil {
		return fail(err)
	}

	if s.confined() {
		if err := s.confineThread(ruleset); err != nil {
			return fail(err)
		}
	}

	if err := reports.Encode(report{}); err != nil {
		return fail(err)
	}

	pid, err = syscall.ForkExec(path, s.Argv, &syscall.ProcAttr{
		Dir: s.Dir, Env: s.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fail(fmt.Errorf("%s in %s: %w", path, s.Dir, err))
	}

	return pid, restore, nil
}

func (s launchSpec) confined() bool { return s.Tier.AtLeast(TierLandlock) }

// confineThread removes privileges from the calling thread, and verifies that they are gone.
func (s launchSpec) confineThread(ruleset int) error {
	// Dropping from the bounding set needs CAP_SETPCAP, so it comes first. Landlock and seccomp
	// require no_new_privs of a caller without CAP_SYS_ADMIN. It also makes set-user-id programs
	// harmless.
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

	// Some kernels may accept the calls without enforcing them. This must not count as confinement.
	for _, path := range s.Canary {
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Close(fd)
			return fmt.Errorf("a file outside could be read: %s", path)
		}
	}

	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd)
		return errors.New("a socket could be created")
	}

	return nil
}

// lookPath looks up a program like a shell with the command's PATH, but never in the working
// folder.
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

	denied := error(nil) // returned if no later folder has a program of this name, as in shells
	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			continue // relative to the working folder, which the command may have written
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

// lowerPriority gives other programs precedence over processes started by this thread. If the
// daemon has a higher nice value, it is kept: raising the priority needs a capability.
func lowerPriority() error {
	left, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // the raw call returns 20 minus the nice value, which is never negative
	if err != nil {
		return os.NewSyscallError("getpriority", err)
	}
	return os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 0, max(20-left, 5)))
}
