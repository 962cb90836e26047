package tool

import (
	"golang.org/x/sys/unix"

	"rouse/internal/ledger/label"
)

// fileID returns the identity of the file at a path, without following links. It returns the zero
// FileID if the file does not exist or cannot be inspected.
func fileID(path string) label.FileID {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &s); err != nil {
		return label.FileID{}
	}

	id := label.FileID{Device: unix.Mkdev(s.Dev_major, s.Dev_minor), Inode: s.Ino}
	if s.Mask&unix.STATX_BTIME != 0 {
		id.Born = s.Btime.Sec*1e9 + int64(s.Btime.Nsec)
	}
	return id
}
