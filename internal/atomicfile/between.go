package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Name is a file or a folder in a root that is held open: a link which takes the place of a folder on the
// way leads no rename elsewhere. MoveOver renames it to a name that may be taken, and MoveNew to a free
// one: fs.ErrExist. Neither syncs. Between file systems both return syscall.EXDEV.
type Name struct {
	Root *os.Root
	Name string // relative to Root
}

// Path returns the path of the name by that of its root.
func (n Name) Path() string { return filepath.Join(n.Root.Name(), n.Name) }

// reserveAndRename is MoveNew for systems without a rename that refuses to replace: an empty file or
// folder reserves the name, and is replaced.
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
