//go:build !unix

package atomicfile

import "os"

// MoveOver renames a file or folder, and replaces an existing file.
func MoveOver(from, to Name) error {
	if from.Root == to.Root {
		return from.Root.Rename(from.Name, to.Name)
	}
	return os.Rename(from.Path(), to.Path())
}
