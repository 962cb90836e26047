//go:build unix

package file

import (
	"bytes"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// nonBlocking keeps the opening of a pipe from waiting for a writer.
const nonBlocking = syscall.O_NONBLOCK

// plainFolder opens a folder as a plain file. One that os.Root has opened calls stat for each entry when it is listed; a
// plain one gets their types from the list alone, which is much faster. What the list says decides only what is opened, and what
// was opened is checked again.
func plainFolder(dir *os.Root) (*os.File, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()

	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}

	return os.NewFile(uintptr(fd), dir.Name()), nil
}

// readListed does what readOpened does, with fewer system calls: os.File asks the poller about each file, and reads
// once more to see its end. A name of a list is of one element, and no link is followed, so that none leads out.
func (at walkedFile) readListed(buf *bytes.Buffer) ([]byte, error) {
	fd, err := restarted(func() (int, error) {
		return unix.Openat(int(at.folder.Fd()), at.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()

	var info unix.Stat_t
	switch err := unix.Fstat(fd, &info); {
	case err != nil:
		return nil, err
	case info.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errNotSearchable
	case at.walk.outside && info.Nlink > 1:
		return nil, errNotSearchable
	case info.Size > maxRaw:
		return nil, errLarge
	}

	text := room(buf, info.Size)
	done := 0
	for done < len(text) {
		n, err := restarted(func() (int, error) { return unix.Read(fd, text[done:]) })
		if err != nil {
			return nil, err
		}

		// It has not grown: a read that gives less than was asked for is at the end.
		if done += n; n == 0 || int64(done) == info.Size {
			break
		}
	}

	return text[:done], nil
}

// restarted repeats a system call that a signal interrupted.
func restarted(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
