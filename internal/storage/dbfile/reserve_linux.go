package dbfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate allocates disk space for a file in one call. It fails if the file system does not
// support that.
func allocate(f *os.File, size int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, size); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
