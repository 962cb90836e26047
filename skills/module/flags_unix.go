//go:build unix

package module

import "syscall"

// openFlags keep an open from waiting for a pipe's writer.
const openFlags = syscall.O_NONBLOCK
