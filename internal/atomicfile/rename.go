package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Rename renames a file or a folder durably, and replaces a file that has the name. The content of
// the file has to be synced already.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}

	return syncFolders(from, to)
}

// RenameNew renames a file durably to a free name in the same folder. A file that has the name
// stays: fs.ErrExist.
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

// renameNew uses a hard link, which refuses a name that is taken. Where there are no links, an empty
// placeholder takes the name first, and a crash may leave that behind.
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
	// The old folder last: after a crash in between the file has two names, not none.
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

// SyncFolderIn is SyncFolder for a folder of a root; "." is the root itself.
func SyncFolderIn(root *os.Root, name string) error {
	folder, err := root.Open(name)
	if err != nil {
		return err
	}

	return errors.Join(syncDir(folder), folder.Close())
}
