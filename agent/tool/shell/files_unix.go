//go:build unix

package shell

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// inodeOf returns the inode number of a file.
func inodeOf(info fs.FileInfo) uint64 {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(s.Ino) //nolint:unconvert // its width differs between systems
}

// moveFile moves a file or a link into another folder of the same disk. It keeps both folders open,
// so that a link cannot redirect the move.
func moveFile(from *os.Root, rel string, to *os.Root, name string) error {
	source, err := from.Open(filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer source.Close()

	target, err := to.Open(".")
	if err != nil {
		return err
	}
	defer target.Close()

	return unix.Renameat(int(source.Fd()), filepath.Base(rel), int(target.Fd()), name)
}
