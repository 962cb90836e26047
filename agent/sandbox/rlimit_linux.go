//go:build amd64 || arm64

package sandbox

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// setLimits sets what the kernel bounds by itself. What it bounds by user and by mapping is set soft
// and given back, for the keeper must live on when the command has used it up; the filter keeps
// the command from raising it.
//
// The memory of the whole tree is watched by the daemon, which says why it ended the command; the
// limit of one process here is wider, and holds what comes between two looks.
func (s launchSpec) setLimits() (restore func(), err error) {
	files, size, cpu := uint64(s.Limits.OpenFiles), uint64(s.Limits.FileSize), uint64(s.Limits.CPU.Seconds())
	for _, l := range []struct {
		what       int
		soft, hard uint64
	}{
		{unix.RLIMIT_CORE, 0, 0},
		{unix.RLIMIT_NOFILE, files, files},
		{unix.RLIMIT_FSIZE, size, size},
		{unix.RLIMIT_CPU, cpu, cpu + 1}, // SIGXCPU, and SIGKILL for who does not heed it
	} {
		if err := lowerLimit(l.what, l.soft, l.hard); err != nil {
			return nil, err
		}
	}

	data, err := lowerSoftLimit(unix.RLIMIT_DATA, uint64(max(2*s.Limits.Memory, 512<<20)))
	if err != nil {
		return nil, err
	}

	processes, err := lowerSoftLimit(unix.RLIMIT_NPROC, s.Threads)
	return func() { data(); processes() }, err
}

// lowerLimit sets a limit, which may be lower already.
func lowerLimit(what int, soft, hard uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(what, &now); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	hard = min(hard, now.Max)
	// syscall, not unix: it forgets the soft limit of open files that the Go runtime would restore.
	return os.NewSyscallError("setrlimit", syscall.Setrlimit(what, &syscall.Rlimit{Cur: min(soft, hard), Max: hard}))
}

func lowerSoftLimit(what int, soft uint64) (restore func(), err error) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(what, &before); err != nil {
		return nil, os.NewSyscallError("getrlimit", err)
	}
	if soft >= before.Cur {
		return func() {}, nil
	}
	if err := syscall.Setrlimit(what, &syscall.Rlimit{Cur: soft, Max: before.Max}); err != nil {
		return nil, os.NewSyscallError("setrlimit", err)
	}

	return func() { _ = syscall.Setrlimit(what, &before) }, nil // to what it was, which is always allowed
}

// dropCapabilities takes all from the calling thread, and from whatever it executes as root.
func dropCapabilities() error {
	for c := uintptr(0); c <= 63; c++ {
		// Without the capability to do so there is nothing to take; beyond the last one it is EINVAL.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}

	_ = unix.Prctl(unix.PR_SET_SECUREBITS, 1<<0|1<<1, 0, 0, 0) // root is no exception, for good
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	return nil
}

// countUserThreads counts the threads of this user: the kernel's limit is for all of them.
func countUserThreads(all []process) uint64 {
	var n int
	for _, p := range all {
		info, err := os.Stat("/proc/" + strconv.Itoa(p.pid))
		if err != nil {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == os.Getuid() {
			n += p.threads
		}
	}

	return uint64(n)
}
