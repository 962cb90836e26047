package shell

import (
	"errors"
	"io/fs"
	"os"
)

// inodeOf returns 0, so files are compared only by size and time.
func inodeOf(fs.FileInfo) uint64 { return 0 }

// moveFile always fails, so the caller copies the file.
func moveFile(*os.Root, string, *os.Root, string) error { return errors.ErrUnsupported }
