package shell

import "io/fs"

// inodeOf is 0: files are told apart by size and time alone.
func inodeOf(fs.FileInfo) uint64 { return 0 }
