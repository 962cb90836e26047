package sandbox

import (
	"runtime"
	"slices"

	"rouse/internal/fspath"
)

// systemFolders contain the system's programs and libraries, which every command may read.
var systemFolders = map[string][]string{
	"linux":  {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/sys/devices/system/cpu"},
	"darwin": {"/usr", "/bin", "/sbin", "/System", "/Library/Developer/CommandLineTools", "/Library/Apple", "/opt/homebrew"},
}[runtime.GOOS]

// IsSystem reports whether every command may read a file. This is true for files of the system, and
// for all files on systems that do not confine reading.
func IsSystem(path string) bool {
	return systemFolders == nil || slices.ContainsFunc(systemFolders, func(folder string) bool {
		return fspath.Within(path, folder)
	})
}
