//go:build unix

package atomicfile

import (
	"errors"
	"os"
	"syscall"
)

// syncDir writes the names in an open folder to the disk. A file system that has no such call says
// so, and does what it can by itself.
func syncDir(folder *os.File) error {
	err := folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}

	return err
}
