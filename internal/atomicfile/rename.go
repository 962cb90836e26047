package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Rename renames a synced file or folder durably. It replaces an existing file.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}

	return syncFolders(from, to)
}

// RenameNew renames a file durably within its folder. It returns fs.ErrExist if the name is taken.
func RenameNew(from, to string) error {
	if filepath.Dir(from) != filepath.Dir(to) {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrInvalid}
	}

	root, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer root.Close()

	if err := renameNew(root, filepath.Base(from), filepath.Base(to)); err != nil {
		return err
	}

	return SyncFolder(filepath.Dir(to))
}

// renameNew renames a file with a hard link, or else with a placeholder, which a crash may leave
// behind.
func renameNew(root *os.Root, from, to string) error {
	err := root.Link(from, to)
	switch {
	case err == nil:
		return root.Remove(from)
	case errors.Is(err, fs.ErrExist):
		return err
	}

	return reserveAndRename(Name{root, from}, Name{root, to})
}

func syncFolders(from, to string) error {
	err := SyncFolder(filepath.Dir(to))
	// Sync the old folder last: after a crash in between, the file has two names instead of being
	// lost.
	if filepath.Dir(from) != filepath.Dir(to) {
		err = errors.Join(err, SyncFolder(filepath.Dir(from)))
	}

	return err
}

// SyncFolder makes the names in a folder durable.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}

	return errors.Join(syncDir(folder), folder.Close())
}

// SyncFolderIn is like SyncFolder, for a folder in a root. "." is the root itself.
func SyncFolderIn(root *os.Root, name string) error {
	folder, err := root.Open(name)
	if err != nil {
		return err
	}

	return errors.Join(syncDir(folder), folder.Close())
}

// Name is the name of a file or folder in an open root. Renames stay in the root, even if a folder
// in the path is replaced by a link. MoveOver replaces an existing file; MoveNew returns
// fs.ErrExist instead. They do not sync, and return syscall.EXDEV between file systems.
type Name struct {
	Root *os.Root
	Name string // relative to Root
}

// Path joins the name to the path of its root.
func (n Name) Path() string { return filepath.Join(n.Root.Name(), n.Name) }

// reserveAndRename creates an empty file or folder with the new name, and replaces it by a rename.
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
