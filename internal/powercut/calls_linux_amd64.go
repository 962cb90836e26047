package powercut

import "golang.org/x/sys/unix"

// oldCalls are the system calls that newer architectures support only in the form with a folder
// descriptor.
var oldCalls = map[uint64]call{
	unix.SYS_OPEN:   {do: callOpen, paths: []int{0}, flags: 1},
	unix.SYS_RENAME: {do: callRename, paths: []int{0, 1}},
	unix.SYS_LINK:   {do: callLink, paths: []int{0, 1}},
	unix.SYS_UNLINK: {do: callUnlink, paths: []int{0}},
	unix.SYS_RMDIR:  {do: callRmdir, paths: []int{0}},
	unix.SYS_MKDIR:  {do: callMkdir, paths: []int{0}},
}

func setAnswer(regs *unix.PtraceRegs, value int64) { regs.Rax = uint64(value) }
