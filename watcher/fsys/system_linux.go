package fsys

import (
	"io/fs"
	"syscall"
)

// openFlags prevents an open from following a link or waiting for a pipe that has replaced a file.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func identity(info fs.FileInfo) (device, inode uint64, changed int64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, 0
	}
	return uint64(st.Dev), st.Ino, st.Ctim.Nano() //nolint:unconvert // its width differs between systems
}

// networks maps file systems that do not report changes made by other machines to their names.
var networks = map[int64]string{
	0x6969: "NFS", 0xFF534D42: "CIFS", 0xFE534D42: "SMB", 0x517B: "SMB", 0x01021997: "9P", 0x65735546: "FUSE",
	0x5346414F: "AFS", 0x00C36400: "Ceph", 0x73757245: "Coda",
}

// Network returns the name of the network file system that a folder is on, or "".
func Network(dir string) string {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return ""
	}
	return networks[int64(st.Type)&0xFFFFFFFF] //nolint:unconvert // its width differs between systems
}
