//go:build !linux && !darwin && !windows

package atomicfile

// MoveNew renames a file or folder. It returns fs.ErrExist if the new name is taken.
func MoveNew(from, to Name) error { return reserveAndRename(from, to) }
