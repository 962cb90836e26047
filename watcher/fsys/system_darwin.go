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
	return uint64(st.Dev), st.Ino, st.Ctimespec.Nano()
}

// networks maps file systems that do not report changes made by other machines to their names.
var networks = map[string]string{"nfs": "NFS", "smbfs": "SMB", "afpfs": "AFP", "webdav": "WebDAV", "macfuse": "FUSE"}

// Network returns the name of the network file system that a folder is on, or "".
func Network(dir string) string {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return ""
	}

	var name []byte
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}

	return networks[string(name)]
}
