package atomicfile

import (
	"errors"

	"golang.org/x/sys/unix"
)

// MoveNew renames a file or folder. It returns fs.ErrExist if the new name is taken.
func MoveNew(from, to Name) error {
	err := inFolders(from, to, func(from int, old string, to int, name string) error {
		return unix.Renameat2(from, old, to, name, unix.RENAME_NOREPLACE)
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return reserveAndRename(from, to) // not supported by the file system
	}
	return err
}
