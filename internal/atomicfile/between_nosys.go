//go:build !linux && !darwin && !windows

package atomicfile

// MoveNew renames a file or a folder unless the new name is taken: fs.ErrExist.
func MoveNew(from, to Name) error { return reserveAndRename(from, to) }
