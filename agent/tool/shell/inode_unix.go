//go:build unix

package shell

import (
	"io/fs"
	"syscall"
)

// inodeOf is the number of a file on its disk.
func inodeOf(info fs.FileInfo) uint64 {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(s.Ino) //nolint:unconvert // its width differs between systems
}
