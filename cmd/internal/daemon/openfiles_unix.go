//go:build unix

package daemon

import "syscall"

// maxOpenFiles returns the limit of open files. The Go runtime has raised it to the hard limit.
func maxOpenFiles() (limit uint64, known bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return uint64(l.Cur), err == nil //nolint:unconvert // the field is signed on some systems
}
