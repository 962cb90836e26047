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

// Child must be the first line of main, and of TestMain where a test starts commands. In a supervisor
// process it supervises its command and does not return; in any other process it returns at once.
func Child() {
	if len(os.Args) != 2 || os.Args[1] != supervisorArg {
		return
	}

	runtime.LockOSThread() // so that the goroutine that confines its thread gets another one
	reports := json.NewEncoder(os.NewFile(reportFD, "report"))
	r, err := supervise(reports)
	if err != nil {
		r = failureReport(err)
	}

	_ = reports.Encode(r) // fails when the daemon is gone, and then nobody needs it
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

// supervise starts the command, and waits until it has ended and no process that it started is left.
func supervise(reports *json.Encoder) (report, error) {
	// Nothing but the three standard streams may reach the command. The files of this process stay open.
	if err := unix.CloseRange(3, 1<<31, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return report{}, os.NewSyscallError("close_range", err)
	}

	var s launchSpec
	if err := json.NewDecoder(os.NewFile(launchSpecFD, "launch spec")).Decode(&s); err != nil {
		return report{}, fmt.Errorf("the launch spec is damaged: %w", err)
	}

	// What a command makes is for those whom its user lets read it, as if they had started it themselves.
	unix.Umask(int(s.Umask))

	// Orphans of the command become children of this process instead of init's: descendants, which
	// can be found and reaped.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return report{}, os.NewSyscallError("prctl", err)
	}

	// When memory is short, the kernel should kill commands before the daemon.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0); err != nil {
		return report{}, err
	}

	// The command runs as the same user: a process that is not dumpable can neither be traced nor read
	// through /proc by it. This comes after the write above, since /proc/self now belongs to root.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return report{}, os.NewSyscallError("prctl", err)
	}

	started := make(chan error, 1)
	var pid int
	restore := func() {}
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends a confined thread with its goroutine, and reuses it for nothing
		var err error
		pid, restore, err = s.startCommand(reports)
		started <- err
	}()
	if err := <-started; err != nil {
		return report{}, err
	}

	restore() // from this thread: the filter of the confined one denies it

	go s.serveControl(pid)
	r := waitForCommand(pid)
	killDescendants()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &used); err == nil {
		r.CPU, r.MaxRSS = used.Utime.Nano()+used.Stime.Nano(), used.Maxrss<<10
	}

	return r, nil
}

// serveControl sends SIGTERM to the command for each byte from the daemon, and kills everything when the
// daemon has closed its end or is gone.
func (s launchSpec) serveControl(pid int) {
	control := os.NewFile(controlFD, "control")
	var b [1]byte
	for {
		if n, err := control.Read(b[:]); n == 0 || err != nil {
			killDescendants()
			if s.Temp != "" {
				_ = os.RemoveAll(s.Temp) // the daemon cannot do it if it was killed
			}
			unix.Exit(0)
		}
		_ = unix.Kill(-pid, unix.SIGTERM) // the group, for the command leads a session; it may have ended by now
	}
}

// waitForCommand reaps every process that ends, until the command itself does.
func waitForCommand(pid int) report {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // no child is left: serveControl has killed and reaped it
			return report{Ended: true, Exit: -1, Signal: int(unix.SIGKILL)}
		case got == pid && status.Signaled():
			return report{Ended: true, Exit: -1, Signal: int(status.Signal())}
		case got == pid && status.Exited():
			return report{Ended: true, Exit: status.ExitStatus()}
		}
	}
}

// killDescendants leaves nothing alive. Process 1 of a namespace can kill all others at once. Elsewhere
// they are stopped first, until a listing shows no new ones: what is stopped cannot fork away from a
// list that is out of date.
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

// reap waits until one child has ended, and collects all others that have as well. It reports whether
// children may be left.
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
			options = unix.WNOHANG // the first was waited for; of the others only those that have ended
		}
	}
}

// startCommand confines the calling thread for good, and starts the command from it. The order matters:
// the filter denies the calls that lower priority and limits, and Landlock and the filter need
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
			// By its descriptor: the file may have no path here, or none any more.
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

func (s launchSpec) confined() bool { return s.Tier.AtLeast(TierB) }

// confineThread takes from the calling thread what the command must not have, and verifies that it is gone.
func (s launchSpec) confineThread(ruleset int) error {
	// Dropping from the bounding set needs CAP_SETPCAP, so it comes first. no_new_privs is what Landlock
	// and seccomp require of a caller without CAP_SYS_ADMIN, and what makes set-user-id programs harmless.
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

	// A kernel that accepts the calls and does not enforce them must not pass for confinement.
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

// lookPath finds a program as a shell with the command's PATH would, but never in the working folder.
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

	denied := error(nil) // reported when no later folder has a program of this name, as shells do
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

// lowerPriority gives other programs precedence over what this thread starts. A daemon that is nicer
// already stays so: raising a priority needs a capability.
func lowerPriority() error {
	left, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // the raw call returns 20 minus the nice value, so that it is never negative
	if err != nil {
		return os.NewSyscallError("getpriority", err)
	}
	return os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 0, max(20-left, 5)))
}
