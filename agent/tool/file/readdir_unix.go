//go:build unix

package file

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// nonBlocking keeps the opening of a pipe from waiting for who writes to it.
const nonBlocking = syscall.O_NONBLOCK

// readDir gives the entries of a folder in no order. A folder that os.Root has opened looks at
// each of its entries, one by one; the same folder as a plain file has their types in its list.
// What an entry is by that list decides only what is opened, and that is looked at again.
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
