//go:build unix

package daemon

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// writableByOthers says how somebody else could change a file: they own it or a folder above it, or
// may write to one of these. A group with the user's own number is the user alone, and in a folder
// with the sticky bit others cannot replace what is not theirs.
func writableByOthers(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}

	for at, folder := path, false; ; at, folder = filepath.Dir(at), true {
		info, err := os.Stat(at)
		if err != nil {
			return "" // it was there a moment ago; whoever reads it next reports what is wrong
		}

		if why := writable(info, folder); why != "" {
			if folder {
				why = "lies in " + at + ", which " + why
			}
			return why
		}

		if at == filepath.Dir(at) {
			return ""
		}
	}
}

func writable(info fs.FileInfo, folder bool) string {
	sys, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return ""
	case sys.Uid != 0 && int(sys.Uid) != os.Geteuid():
		// Root can change everything anyway, so files of root are fine.
		return fmt.Sprintf("belongs to another user (number %d)", sys.Uid)
	case folder && info.Mode()&fs.ModeSticky != 0:
		return ""
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Sprintf("may be written by everybody (mode %#o)", info.Mode().Perm())
	case info.Mode().Perm()&0o020 != 0 && sys.Gid != 0 && sys.Gid != sys.Uid:
		return fmt.Sprintf("may be written by its group (mode %#o)", info.Mode().Perm())
	}

	return ""
}
