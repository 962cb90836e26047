//go:build amd64 || arm64

package sandbox

import (
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter denies calls that commands do not need and that the other layers do not prevent. It is
// a deny list, because an allow list would break programs with each new libc.
//
// The filter sees the registers of a call, but not memory. Paths and addresses are left to the
// other layers, and sockets are denied when they are created.

// deniedCalls return EPERM on every tier that has a filter.
var deniedCalls = []uint32{
	// other views of the file system, and files opened by handle without a path
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_LISTMOUNT, unix.SYS_STATMOUNT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	// other namespaces
	unix.SYS_SETNS, unix.SYS_UNSHARE,
	// other processes
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
	unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	// keys, and parts of the kernel with a history of vulnerabilities
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_VMSPLICE,
	// memory that belongs to no process and is not limited
	unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_MQ_OPEN, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET,
	// the machine
	unix.SYS_REBOOT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME, unix.SYS_SYSLOG, unix.SYS_ACCT,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP, unix.SYS_FANOTIFY_INIT,
}

// attributeCalls change modes, owners and times. Landlock does not restrict them for any file of
// the user, and the filter cannot see which file is meant. Tier B therefore skips them and reports
// success, because git, tar and many other programs fail on an error.
var attributeCalls = []uint32{
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
}

// extendedCalls change attributes that programs do not need.
var extendedCalls = []uint32{
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
}

// processCalls change the scheduling of the user's other processes. On tier B no other layer
// prevents this.
var processCalls = []uint32{
	unix.SYS_SETPRIORITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETAFFINITY, unix.SYS_IOPRIO_SET,
}

// watchCalls report changes to any file or folder, because Landlock does not restrict them. On tier
// B every name is visible.
var watchCalls = []uint32{unix.SYS_INOTIFY_ADD_WATCH}

// deniedFcntls are denied requests of fcntl. A lease on a readable file makes its owner wait to
// open it. A directory notification is equivalent to watchCalls.
var deniedFcntls = []uint32{unix.F_SETLEASE, unix.F_NOTIFY}

// deniedIoctls are denied requests of ioctl: terminal input, and attributes of an open file.
var deniedIoctls = []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD, unix.FS_IOC_SETFLAGS, fsIocFSSetXAttr}

const (
	fsIocFSSetXAttr = 0x401c5820
	newNamespaces   = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
)

// Offsets in struct seccomp_data. Arguments have 64 bits. On these architectures the low half comes
// first.
const (
	offsetNumber = 0
	offsetArch   = 4
)

func offsetArg(n uint32) uint32 { return 16 + 8*n }

// filter is a BPF program under construction.
type filter []unix.SockFilter

func (f *filter) add(code uint16, jt, jf uint8, k uint32) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

func (f *filter) load(offset uint32) { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, offset) }
func (f *filter) answer(k uint32)    { f.add(unix.BPF_RET|unix.BPF_K, 0, 0, k) }
func (f *filter) fail(e unix.Errno)  { f.answer(unix.SECCOMP_RET_ERRNO | uint32(e)) }

// only runs the steps if the loaded value equals value, and otherwise skips them.
func (f *filter) only(value uint32, steps func()) {
	at := len(*f)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 0, value)
	steps()
	(*f)[at].Jf = uint8(len(*f) - at - 1)
}

// call handles one system call. The call is allowed unless the steps return another answer.
func (f *filter) call(number uint32, steps func()) {
	f.only(number, func() {
		steps()
		f.answer(unix.SECCOMP_RET_ALLOW)
	})
}

// deny returns EPERM if an argument is one of the values.
func (f *filter) deny(arg uint32, values ...uint32) {
	f.load(offsetArg(arg))
	for _, value := range values {
		f.only(value, func() { f.fail(unix.EPERM) })
	}
}

// newFilter returns the program for a tier.
func newFilter(t Tier, network bool) []unix.SockFilter {
	var f filter
	f.load(offsetArch)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, auditArch)
	f.answer(unix.SECCOMP_RET_KILL_PROCESS) // 32-bit calls have other numbers and would bypass the list below
	f.load(offsetNumber)
	if foreignCalls != 0 {
		f.add(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, 0, 1, foreignCalls)
		f.answer(unix.SECCOMP_RET_KILL_PROCESS)
	}

	denied := slices.Concat(deniedCalls, archDenied)
	if t == TierLandlock {
		denied = slices.Concat(denied, extendedCalls, processCalls, watchCalls)
		f.only(unix.SYS_UTIMENSAT, f.touch)
		for _, number := range slices.Concat(attributeCalls, archAttributes) {
			f.only(number, func() { f.fail(0) })
		}
	}

	for _, number := range denied {
		f.only(number, func() { f.fail(unix.EPERM) })
	}

	f.only(unix.SYS_CLONE3, func() { f.fail(unix.ENOSYS) }) // its flags are in memory, and every libc falls back to clone on ENOSYS
	f.call(unix.SYS_CLONE, func() {
		f.load(offsetArg(0))
		f.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, newNamespaces)
		f.fail(unix.EPERM)
	})

	f.call(unix.SYS_IOCTL, func() { f.deny(1, deniedIoctls...) })
	f.call(unix.SYS_FCNTL, func() { f.deny(1, deniedFcntls...) })
	// The command could raise these two soft limits (see setLimits).
	f.call(unix.SYS_SETRLIMIT, func() { f.deny(0, unix.RLIMIT_NPROC, unix.RLIMIT_DATA) })
	f.call(unix.SYS_PRLIMIT64, func() {
		f.zero(2, func() { f.answer(unix.SECCOMP_RET_ALLOW) }) // no new limit: the call only reads
		f.deny(1, unix.RLIMIT_NPROC, unix.RLIMIT_DATA)
		f.load(offsetArg(0)) // 0 is the caller; limits of other processes must not be changed
		f.only(0, func() { f.answer(unix.SECCOMP_RET_ALLOW) })
		f.fail(unix.EPERM)
	})

	f.sockets(network)
	f.answer(unix.SECCOMP_RET_ALLOW)
	return f
}

// touch skips changes of times like those of other attributes, unless the call sets the current
// time of a path. Programs use that call if they could not open the file (touch), or to test
// whether the file exists (Python's Path.touch). They would mistake a success for a created file.
func (f *filter) touch() {
	const path, times = 1, 2
	f.zero(times, func() {
		f.zero(path, func() { f.fail(0) }) // of an open file
		f.fail(unix.EACCES)
	})
	f.fail(0)
}

// zero runs the steps if an argument is a null pointer, and otherwise skips them.
func (f *filter) zero(arg uint32, steps func()) {
	f.load(offsetArg(arg))
	f.only(0, func() {
		f.load(offsetArg(arg) + 4)
		f.only(0, steps)
	})
}

// sockets allows socket pairs, and internet sockets if the network is granted. Unix sockets are
// never allowed, because before version 9 Landlock does not restrict connections to them.
func (f *filter) sockets(network bool) {
	f.call(unix.SYS_SOCKETPAIR, func() {
		f.load(offsetArg(1))
		f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0, 0, 0xf) // without SOCK_CLOEXEC and SOCK_NONBLOCK
		f.only(unix.SOCK_STREAM, func() { f.answer(unix.SECCOMP_RET_ALLOW) })
		f.only(unix.SOCK_SEQPACKET, func() { f.answer(unix.SECCOMP_RET_ALLOW) })
		f.fail(unix.EACCES) // a datagram socket can send to any address, even one of a pair
	})
	f.only(unix.SYS_SOCKET, func() {
		if network {
			f.load(offsetArg(0))
			f.only(unix.AF_INET, func() { f.answer(unix.SECCOMP_RET_ALLOW) })
			f.only(unix.AF_INET6, func() { f.answer(unix.SECCOMP_RET_ALLOW) })
			f.only(unix.AF_NETLINK, func() { // getaddrinfo needs the addresses of this machine
				f.load(offsetArg(2))
				f.only(unix.NETLINK_ROUTE, func() { f.answer(unix.SECCOMP_RET_ALLOW) })
			})
		}
		f.fail(unix.EACCES)
	})
}

// installFilter permanently installs a filter on the calling thread. The thread must have
// no_new_privs.
func installFilter(program []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	return os.NewSyscallError("seccomp", errnoOf(errno))
}
