package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch    = unix.AUDIT_ARCH_AARCH64
	foreignCalls = 0 // this architecture has none
)

var archDenied, archAttributes []uint32
