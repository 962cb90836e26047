package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"syscall"
)

// socketName is under which name the socket at a path is kept: it tells that file from any other that is put there later,
// which the address of a socket does not. "" if there is none.
func socketName(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&os.ModeSocket == 0 {
		return ""
	}

	// A number is given again to a new file, but not with the same time.
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d", sys.Dev, sys.Ino, info.ModTime().UnixNano()))
	return homeSocketPrefix + hex.EncodeToString(sum[:8])
}
