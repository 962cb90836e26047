//go:build linux || darwin

package diskspace

import (
	"fmt"
	"os"
	"syscall"
)

// Free returns the free space of the file system that contains a folder.
func Free(folder string) (Space, error) {
	var file syscall.Stat_t
	if err := syscall.Stat(folder, &file); err != nil {
		return Space{}, os.NewSyscallError("stat", err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil {
		return Space{}, os.NewSyscallError("statfs", err)
	}

	// Use Bavail, because Bfree includes the space reserved for root.
	//nolint:unconvert // Bsize is an uint32 on darwin.
	return Space{ID: fmt.Sprint(file.Dev), Bytes: int64(fs.Bavail) * int64(fs.Bsize), Inodes: int64(fs.Ffree), CountsInodes: fs.Files > 0}, nil
}
