//go:build unix

package daemon

import "syscall"

// maxOpenFiles is how many files this process may have open at a time. The Go runtime has raised the soft limit to the hard one
// at the start; commands get the limit that was there before.
func maxOpenFiles() (limit uint64, known bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return uint64(l.Cur), err == nil //nolint:unconvert // it is signed on some systems
}
