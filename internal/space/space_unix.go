//go:build linux || darwin

package space

import (
	"fmt"
	"os"
	"syscall"
)

// Of says what the file system of a folder has left.
func Of(folder string) (Left, error) {
	var file syscall.Stat_t
	if err := syscall.Stat(folder, &file); err != nil {
		return Left{}, os.NewSyscallError("stat", err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil {
		return Left{}, os.NewSyscallError("statfs", err)
	}

	// Bavail: what is kept for root is not for us.
	//nolint:unconvert // Bsize is an uint32 on darwin.
	return Left{ID: fmt.Sprint(file.Dev), Bytes: int64(fs.Bavail) * int64(fs.Bsize), Inodes: int64(fs.Ffree), CountsInodes: fs.Files > 0}, nil
}
