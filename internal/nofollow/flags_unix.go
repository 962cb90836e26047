//go:build unix

package nofollow

import "syscall"

// openFlags keep a last element from being followed, and an open from waiting for a pipe's writer.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
