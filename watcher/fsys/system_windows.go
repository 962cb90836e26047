package fsys

import (
	"io/fs"
	"strings"
	"syscall"
)

const openFlags = 0

// identity takes the time of creation for the number that Windows gives a file, which is
// not told without opening it; nothing tells when a file came into its folder.
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
