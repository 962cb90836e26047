//go:build unix

package file

import "syscall"

// doNotWait keeps the opening of a pipe from waiting for who writes to it.
const doNotWait = syscall.O_NONBLOCK
