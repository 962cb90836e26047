package fsys

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenForWriting reports whether a program on this machine has a file open for writing or mapped.
// It requests a read lease, which the kernel grants only if the file is not open for writing, and
// releases the lease at once. A program that opens the file for writing in between waits for a
// moment. If the system grants no leases, as on network file systems and for files of other users,
// OpenForWriting returns false.
func OpenForWriting(f *os.File) (open bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}

	err = raw.Control(func(fd uintptr) {
		_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
		open = err == unix.EAGAIN
		if err == nil {
			_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK) // closing the file releases the lease as well
		}
	})
	return err == nil && open
}
