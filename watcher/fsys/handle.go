package fsys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"rouse/internal/fspath"
	"rouse/internal/nofollow"
)

// Handle names a file below an open folder. No call leaves that folder, even if another process
// puts links in the way.
type Handle struct {
	Root *os.Root
	Name string // relative to Root
}

// HandleIn returns the handle of a file or folder in root, given its path. It opens nothing.
func HandleIn(root *os.Root, path string) Handle {
	rel, ok := RelInside(root.Name(), path)
	if !ok {
		rel = "."
	}
	return Handle{root, filepath.FromSlash(rel)}
}

// Path returns the path of the file.
func (s Handle) Path() string { return filepath.Join(s.Root.Name(), s.Name) }

// Lstat returns the information about the file itself, not about the target of a link.
func (s Handle) Lstat() (fs.FileInfo, error) { return s.Root.Lstat(s.Name) }

// Open opens the file for reading. It does not follow a link and does not wait for a pipe.
func (s Handle) Open() (*os.File, error) {
	return s.Root.OpenFile(s.Name, os.O_RDONLY|openFlags, 0)
}

// Remove removes the file.
func (s Handle) Remove() error { return s.Root.Remove(s.Name) }

// Sibling returns the handle of a file with another name in the same folder.
func (s Handle) Sibling(name string) Handle {
	return Handle{s.Root, filepath.Join(filepath.Dir(s.Name), name)}
}

// OpenHandle opens the folder of a file at any path. The caller must close the handle's Root.
func OpenHandle(b nofollow.UntrustedDirs, path string) (Handle, error) {
	root, err := b.OpenRoot(filepath.Dir(path))
	return Handle{root, filepath.Base(path)}, err
}

// JoinPath returns the path of a file in a folder, given its name with slashes.
func JoinPath(dir, rel string) string { return filepath.Join(dir, filepath.FromSlash(rel)) }

// RelInside returns a path relative to a folder, with slashes. It returns false if the path is not
// inside the folder.
func RelInside(dir, path string) (string, bool) {
	rel, ok := fspath.Rel(dir, path)
	if !ok || rel == "." {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

// IsNotExist reports whether an error means that a file does not exist. ENOTDIR means that a file
// has replaced a parent folder.
func IsNotExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
