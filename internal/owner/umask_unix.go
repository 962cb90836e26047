//go:build unix

package owner

import (
	"os"
	"strconv"
	"syscall"
)

// RestrictUmask makes all files that this process creates private to its user, including those
// created by libraries: files get mode 0600, folders 0700. It must be called once, at the start of
// main.
func RestrictUmask() {
	former := syscall.Umask(0o077)
	// Setenv cannot fail for this name and value.
	_ = os.Setenv(formerUmask, strconv.FormatInt(int64(former), 8))
}
