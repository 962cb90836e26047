//go:build unix

package dbfile

import (
	"os"
	"syscall"
)

// inode returns the inode number of a file, or 0 if the file does not exist. The device number is
// not used, because it can change when the machine restarts.
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
