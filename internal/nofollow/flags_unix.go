//go:build unix

package nofollow

import "syscall"

// openFlags prevents Open from following a link and from waiting for the writer of a pipe.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
