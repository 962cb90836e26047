//go:build unix

package watcher

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// rename renames a file, and replaces what has the new name.
func rename(file, dest fileHandle) error { return inFolders(file, dest, unix.Renameat) }

// inFolders has a file renamed between two folders that are held open: by path, a link could have taken
// the place of one of them meanwhile.
func inFolders(file, dest fileHandle, rename func(from int, old string, to int, name string) error) error {
	from, err := file.root.Open(filepath.Dir(file.name))
	if err != nil {
		return err
	}
	defer from.Close()

	to, err := dest.root.Open(filepath.Dir(dest.name))
	if err != nil {
		return err
	}
	defer to.Close()

	if err := rename(int(from.Fd()), filepath.Base(file.name), int(to.Fd()), filepath.Base(dest.name)); err != nil {
		return &os.LinkError{Op: "rename", Old: file.path(), New: dest.path(), Err: err}
	}
	return nil
}
