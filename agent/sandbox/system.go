package sandbox

import (
	"runtime"
	"slices"

	"rouse/internal/fspath"
)

// systemFolders are the system's programs and libraries, which every command may read.
var systemFolders = map[string][]string{
	"linux":  {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/sys/devices/system/cpu"},
	"darwin": {"/usr", "/bin", "/sbin", "/System", "/Library/Developer/CommandLineTools", "/Library/Apple", "/opt/homebrew"},
}[runtime.GOOS]

// IsSystem reports whether every command may read a file, since it is the system's or since nothing confines
// here what commands read.
func IsSystem(path string) bool {
	return systemFolders == nil || slices.ContainsFunc(systemFolders, func(folder string) bool {
		return fspath.Within(path, folder)
	})
}
