//go:build amd64 || arm64

package sandbox

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// setLimits sets the limits that the kernel enforces. They apply to the whole process. The limits
// of memory and of the user's threads are soft limits only. restore raises them again for the
// supervisor, which must continue after the command has used them up. The filter prevents the
// command from raising them.
//
// The daemon measures the memory of the whole tree and knows why it killed the command. The limit
// of one process is higher, and applies between two measurements.
func (s launchSpec) setLimits() (restore func(), err error) {
	files, size, cpu := uint64(s.Limits.OpenFiles), uint64(s.Limits.FileSize), uint64(s.Limits.CPU.Seconds())
	for _, l := range []struct {
		what       int
		soft, hard uint64
	}{
		{unix.RLIMIT_CORE, 0, 0},
		{unix.RLIMIT_NOFILE, files, files},
		{unix.RLIMIT_FSIZE, size, size},
		{unix.RLIMIT_CPU, cpu, cpu + 1}, // SIGXCPU, and SIGKILL a second later if it is ignored
	} {
		if err := lowerLimit(l.what, l.soft, l.hard); err != nil {
			return nil, err
		}
	}

	// Since Linux 4.7 this counts private writable mappings, from which allocators take memory.
	// RLIMIT_AS is not used, because Go and Java reserve unused address space.
	data, err := lowerSoftLimit(unix.RLIMIT_DATA, uint64(max(2*s.Limits.Memory, 512<<20)))
	if err != nil {
		return nil, err
	}

	processes, err := lowerSoftLimit(unix.RLIMIT_NPROC, s.Threads)
	return func() { data(); processes() }, err
}

// lowerLimit sets a limit, unless the current limit is lower: only root may raise a limit.
func lowerLimit(what int, soft, hard uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(what, &now); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	hard = min(hard, now.Max)
	// Not unix.Setrlimit: the runtime raises the soft limit of open files at its start. It restores
	// the old limit when it starts a program, unless syscall.Setrlimit was called in between.
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

	return func() { _ = syscall.Setrlimit(what, &before) }, nil // the previous value is always allowed
}

// dropCapabilities drops all capabilities of the calling thread and of programs that it executes as
// root.
func dropCapabilities() error {
	for c := uintptr(0); c <= 63; c++ {
		// EPERM without CAP_SETPCAP, when there are none to drop. EINVAL beyond the kernel's last
		// capability.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}

	// SECBIT_NOROOT and its lock: executing as root, or set-user-id root, does not restore
	// capabilities.
	_ = unix.Prctl(unix.PR_SET_SECUREBITS, 1<<0|1<<1, 0, 0, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	return nil
}

// countUserThreads returns the number of threads of this user. RLIMIT_NPROC limits all of them
// together, so the limit of a command is added to the current number.
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
