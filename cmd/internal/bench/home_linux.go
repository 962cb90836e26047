package bench

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// forget has the system drop a file from its memory, so that the next reader gets it from the disk.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	// What is not on the disk yet cannot be dropped.
	return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}
