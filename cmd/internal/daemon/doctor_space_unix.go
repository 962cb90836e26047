//go:build linux || darwin

package daemon

import (
	"fmt"
	"os"
	"syscall"
)

// spaceOf says what the file system of a folder has left.
func spaceOf(folder string) (space, error) {
	var file syscall.Stat_t
	if err := syscall.Stat(folder, &file); err != nil {
		return space{}, os.NewSyscallError("stat", err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil {
		return space{}, os.NewSyscallError("statfs", err)
	}

	// Bavail: what is kept for root is not for us.
	//nolint:unconvert // Bsize is an uint32 on darwin.
	return space{id: fmt.Sprint(file.Dev), bytes: int64(fs.Bavail) * int64(fs.Bsize), inodes: int64(fs.Ffree), countsInodes: fs.Files > 0}, nil
}
