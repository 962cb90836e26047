package fsys

import (
	"io/fs"
	"strings"
	"syscall"
)

const openFlags = 0

// identity returns the creation time instead of the file index, which Windows reports only for an
// open file. Windows does not report the time at which a file came into its folder.
func identity(info fs.FileInfo) (device, inode uint64, changed int64) {
	st, ok := info.Sys().(*syscall.Win32FileAttributeData)
	if !ok {
		return 0, 0, 0
	}
	return 0, uint64(st.CreationTime.Nanoseconds()), 0
}

// Network returns "SMB" if a folder is on a share.
func Network(dir string) string {
	if strings.HasPrefix(dir, `\\`) {
		return "SMB"
	}
	return ""
}
