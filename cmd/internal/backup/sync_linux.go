package backup

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncsAll reports whether syncAll makes all files durable. If it is false, each file needs its own
// fsync.
const syncsAll = true

// syncAll makes everything written to the file system of a directory durable.
func syncAll(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}

// exchange swaps the names of two directories atomically. It returns false if the file system does
// not support that.
func exchange(a, b string) (bool, error) {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		return false, nil
	}
	return err == nil, os.NewSyscallError("rename", err)
}
