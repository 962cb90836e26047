//go:build amd64 || arm64

package sandbox

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// setLimits sets the limits that the kernel enforces. They hold for the whole process, so that those
// which count all of a user's threads, and memory, are only set as soft limits: restore raises them again
// for the supervisor, which must go on when the command has used them up. The filter keeps the command
// from raising them.
//
// The memory of the whole tree is measured by the daemon, which can tell why it killed the command; the
// limit of one process here is wider, and bounds what is allocated between two measurements.
func (s launchSpec) setLimits() (restore func(), err error) {
	files, size, cpu := uint64(s.Limits.OpenFiles), uint64(s.Limits.FileSize), uint64(s.Limits.CPU.Seconds())
	for _, l := range []struct {
		what       int
		soft, hard uint64
	}{
		{unix.RLIMIT_CORE, 0, 0},
		{unix.RLIMIT_NOFILE, files, files},
		{unix.RLIMIT_FSIZE, size, size},
		{unix.RLIMIT_CPU, cpu, cpu + 1}, // SIGXCPU, and SIGKILL a second later if that was ignored
	} {
		if err := lowerLimit(l.what, l.soft, l.hard); err != nil {
			return nil, err
		}
	}

	// Since Linux 4.7 this counts private writable mappings, which is where allocators take memory from.
	// Not RLIMIT_AS: Go and Java reserve address space that they never use.
	data, err := lowerSoftLimit(unix.RLIMIT_DATA, uint64(max(2*s.Limits.Memory, 512<<20)))
	if err != nil {
		return nil, err
	}

	processes, err := lowerSoftLimit(unix.RLIMIT_NPROC, s.Threads)
	return func() { data(); processes() }, err
}

// lowerLimit sets a limit, unless it is lower already: only root may raise one.
func lowerLimit(what int, soft, hard uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(what, &now); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	hard = min(hard, now.Max)
	// syscall, not unix: the runtime raised the soft limit of open files at its start and restores the
	// old one when it starts a program, unless syscall.Setrlimit was called in between.
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

// dropCapabilities takes all capabilities from the calling thread, and from whatever it executes as root.
func dropCapabilities() error {
	for c := uintptr(0); c <= 63; c++ {
		// EPERM without CAP_SETPCAP, where there is nothing to take; EINVAL beyond the kernel's last capability.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}

	// SECBIT_NOROOT and its lock: executing as root, or set-user-id root, does not bring capabilities back.
	_ = unix.Prctl(unix.PR_SET_SECUREBITS, 1<<0|1<<1, 0, 0, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	return nil
}

// countUserThreads counts the threads of this user. RLIMIT_NPROC bounds all of them together, so that
// the limit of a command has to be added to what is there already.
func countUserThreads(all []process) uint64 {
	var n int
	for _, p := range all {
		info, err := os.Stat("/proc/" + strconv.Itoa(p.pid))
		if err != nil {
			continue // it ended in the meantime
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == os.Getuid() {
			n += p.threads
		}
	}

	return uint64(n)
}
