//go:build unix

package module

import "syscall"

// openFlags prevents opening a pipe from blocking.
const openFlags = syscall.O_NONBLOCK
