//go:build unix

package watcher

import (
	"io/fs"
	"syscall"
)

// identity is the device and inode of a file.
func identity(info fs.FileInfo) (device, inode uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return uint64(st.Dev), st.Ino //nolint:unconvert // its width differs between systems
}
