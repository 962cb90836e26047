package shell

import (
	"errors"
	"io/fs"
	"os"
)

// inodeOf is 0: files are told apart by size and time alone.
func inodeOf(fs.FileInfo) uint64 { return 0 }

// moveFile is not there: what is moved is copied.
func moveFile(*os.Root, string, *os.Root, string) error { return errors.ErrUnsupported }
