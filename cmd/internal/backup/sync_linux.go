package backup

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncsAll says that syncAll makes all durable, so that no file has to be by itself.
const syncsAll = true

// syncAll makes what was written to the file system of a folder durable.
func syncAll(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}

// exchange has two folders swap their names, both at once. false: this file system cannot.
func exchange(a, b string) (bool, error) {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		return false, nil
	}
	return err == nil, os.NewSyscallError("rename", err)
}
