//go:build unix

package atomicfile

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MoveOver renames a file or folder, and replaces an existing file.
func MoveOver(from, to Name) error { return inFolders(from, to, unix.Renameat) }

// inFolders renames between two open folders.
func inFolders(from, to Name, rename func(from int, old string, to int, name string) error) error {
	source, err := from.Root.Open(filepath.Dir(from.Name))
	if err != nil {
		return err
	}
	defer source.Close()

	target, err := to.Root.Open(filepath.Dir(to.Name))
	if err != nil {
		return err
	}
	defer target.Close()

	if err := rename(int(source.Fd()), filepath.Base(from.Name), int(target.Fd()), filepath.Base(to.Name)); err != nil {
		return &os.LinkError{Op: "rename", Old: from.Path(), New: to.Path(), Err: err}
	}
	return nil
}
