//go:build !unix

package watcher

import "os"

// rename renames a file, and replaces what has the new name.
func rename(file, dest fileHandle) error { return os.Rename(file.path(), dest.path()) }
