//go:build unix

package preflight

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// allowed returns an error if this user cannot list an open folder or, if write is true, cannot
// create files in it.
func allowed(folder *os.Root, write bool) error {
	self, err := folder.Open(".")
	if err != nil {
		return err
	}
	defer self.Close()

	mode := uint32(unix.R_OK | unix.X_OK)
	if write {
		mode |= unix.W_OK
	}
	// Use the descriptor, because the path may lead to another folder now.
	if err := unix.Faccessat(int(self.Fd()), ".", mode, unix.AT_EACCESS); err != nil {
		return &deniedError{write, err}
	}
	return nil
}

func executable(info fs.FileInfo) bool { return info.Mode().Perm()&0o111 != 0 }
