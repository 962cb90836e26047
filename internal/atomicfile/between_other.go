//go:build !unix

package atomicfile

import "os"

// MoveOver renames a file or a folder, and replaces a file that has the new name.
func MoveOver(from, to Name) error { return os.Rename(from.Path(), to.Path()) }
