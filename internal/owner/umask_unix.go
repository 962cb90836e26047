//go:build unix

package owner

import (
	"os"
	"strconv"
	"syscall"
)

// Tighten has what this process makes belong to its user alone, whichever library makes it: files are 0600 and
// folders 0700. It is called once, at the start of main.
func Tighten() {
	former := syscall.Umask(0o077)
	_ = os.Setenv(formerUmask, strconv.FormatInt(int64(former), 8)) // fails for names and values that no variable can have
}
