//go:build unix

package dbfile

import (
	"os"
	"syscall"
)

// inode is the number of a file within its disk; 0 when there is no such file. That of its disk is left
// out: it may be another after a restart of the machine.
func inode(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(s.Ino) //nolint:unconvert // its width differs between systems
}
