package tool

import (
	"golang.org/x/sys/unix"

	"rouse/internal/ledger/label"
)

// fileID is the identity of what is at a path, links not followed; zero where there is nothing.
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
