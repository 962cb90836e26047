//go:build unix

package atomicfile

import (
	"errors"
	"os"
	"syscall"
)

// syncDir syncs the names in an open folder to the disk. A file system that does not support this
// says so, and there is nothing else to do.
func syncDir(folder *os.File) error {
	err := folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}

	return err
}
