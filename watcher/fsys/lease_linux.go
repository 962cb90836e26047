package fsys

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenForWriting reports whether a program of this machine has a file open for writing, or mapped. The kernel gives a read
// lease only where none has, and is asked for one that is given back at once: a program that opens the file for writing
// in between waits for a moment. Where the system gives no leases (network file systems, files of other users) nothing
// is known, and the answer is no.
func OpenForWriting(f *os.File) (open bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}

	err = raw.Control(func(fd uintptr) {
		_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
		open = err == unix.EAGAIN
		if err == nil {
			_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK) // closing the file gives it back as well
		}
	})
	return err == nil && open
}
