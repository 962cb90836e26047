//go:build unix

package file

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// nonBlocking keeps the opening of a pipe from waiting for a writer.
const nonBlocking = syscall.O_NONBLOCK

// readDir lists the entries of a folder in no order. A folder that os.Root has opened calls stat for each
// entry; the same folder as a plain file gets their types from the list alone, which is much faster. What
// the list says decides only what is opened, and what was opened is checked again.
func readDir(dir *os.Root) ([]fs.DirEntry, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()

	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}

	list := os.NewFile(uintptr(fd), dir.Name())
	defer list.Close()

	return list.ReadDir(-1)
}
