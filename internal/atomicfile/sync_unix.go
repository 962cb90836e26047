//go:build unix

package atomicfile

import (
	"errors"
	"os"
	"syscall"
)

// syncDir syncs the names in an open folder to the disk. It returns nil if the file system does not
// support that.
func syncDir(folder *os.File) error {
	err := folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}

	return err
}
