//go:build unix

package daemon

import "syscall"

// maxOpenFiles returns the limit of open files of this process. The Go runtime has raised the soft limit to the hard one. Commands
// get the original soft limit.
func maxOpenFiles() (limit uint64, known bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return uint64(l.Cur), err == nil //nolint:unconvert // it is signed on some systems
}
