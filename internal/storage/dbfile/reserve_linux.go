package dbfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate gives a file its room, in one call where the file system can do that.
func allocate(f *os.File, size int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, size); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
