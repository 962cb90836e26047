package powercut

import "golang.org/x/sys/unix"

// oldCalls is empty on this architecture.
var oldCalls = map[uint64]call{}

func setAnswer(regs *unix.PtraceRegs, value int64) { regs.Regs[0] = uint64(value) }
