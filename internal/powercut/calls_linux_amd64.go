package powercut

import "golang.org/x/sys/unix"

// oldCalls are those that newer machines have in one form alone, which also says the folder that a path begins in.
var oldCalls = map[uint64]call{
	unix.SYS_OPEN:   {do: callOpen, paths: []int{0}, flags: 1},
	unix.SYS_RENAME: {do: callRename, paths: []int{0, 1}},
	unix.SYS_LINK:   {do: callLink, paths: []int{0, 1}},
	unix.SYS_UNLINK: {do: callUnlink, paths: []int{0}},
	unix.SYS_RMDIR:  {do: callRmdir, paths: []int{0}},
	unix.SYS_MKDIR:  {do: callMkdir, paths: []int{0}},
}

func setAnswer(regs *unix.PtraceRegs, value int64) { regs.Rax = uint64(value) }
