package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Name is the name of a file or folder in an open root. Renames stay in that root even if a folder of the path is replaced by
// a link. MoveOver replaces an existing file; MoveNew returns fs.ErrExist instead. Neither syncs. Between file systems both
// return syscall.EXDEV.
type Name struct {
	Root *os.Root
	Name string // relative to Root
}

// Path joins the name to the path of its root.
func (n Name) Path() string { return filepath.Join(n.Root.Name(), n.Name) }

// reserveAndRename implements MoveNew on systems without a rename that fails if the target exists. It creates an empty file or
// folder with the new name and renames over it.
func reserveAndRename(from, to Name) error {
	info, err := from.Root.Lstat(from.Name)
	if err != nil {
		return err
	}

	if info.IsDir() {
		err = to.Root.Mkdir(to.Name, 0o700)
	} else {
		var place *os.File
		if place, err = to.Root.OpenFile(to.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			err = place.Close() // Windows cannot replace an open file
		}
	}
	if err != nil {
		return err
	}

	if err := MoveOver(from, to); err != nil {
		return errors.Join(err, to.Root.Remove(to.Name))
	}
	return nil
}
