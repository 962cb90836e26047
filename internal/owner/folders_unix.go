//go:build unix

package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// WritableByOthers says how somebody else could change a file or a folder: they own it or a folder above it, or
// may write to one of these. It is "" when nobody can, and for what does not exist.
func WritableByOthers(path string) string {
	_, why := writableByOthers(path)
	return why
}

// Chmod is the command that takes from others what WritableByOthers found. It is "" when nothing was found, and for
// what belongs to another user, root included, whose mode is not this user's to change.
func Chmod(path string) string {
	at, why := writableByOthers(path)
	if info, err := os.Stat(at); why == "" || err != nil || !Mine(info) {
		return ""
	}
	return "chmod go-w " + at
}

// writableByOthers is WritableByOthers with the file or folder at fault.
func writableByOthers(path string) (fault, why string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", ""
	}

	for at, above := path, false; ; at, above = filepath.Dir(at), true {
		info, err := os.Stat(at)
		if err != nil {
			return "", "" // it was there a moment ago; whoever reads it next reports what is wrong
		}

		// The sticky bit is about what lies in a folder, not about the folder itself.
		if why := foreign(info, above); why != "" {
			if above {
				why = "lies in " + at + ", which " + why
			}
			return at, why
		}

		if at == filepath.Dir(at) {
			return "", ""
		}
	}
}

// Foreign says how somebody else could change this file or folder, whatever lies above it.
func Foreign(info fs.FileInfo) string { return foreign(info, false) }

func foreign(info fs.FileInfo, above bool) string {
	sys, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return ""
	case sys.Uid != 0 && int(sys.Uid) != os.Geteuid():
		// Root can change everything anyway, so files of root are fine.
		return fmt.Sprintf("belongs to another user (number %d)", sys.Uid)
	case info.Mode()&fs.ModeSymlink != 0 || above && info.Mode()&fs.ModeSticky != 0:
		return "" // a link has no mode of its own
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Sprintf("may be written by everybody (mode %#o)", info.Mode().Perm())
	case info.Mode().Perm()&0o020 != 0 && sys.Gid != 0 && sys.Gid != sys.Uid:
		return fmt.Sprintf("may be written by its group (mode %#o)", info.Mode().Perm())
	}

	return ""
}

// Mine says whether a file or a folder belongs to the user of this process.
func Mine(info fs.FileInfo) bool {
	sys, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(sys.Uid) == os.Geteuid()
}

// Private checks a folder that is the user's alone, in a place where others may make names: it is made if
// it is missing, and is no link, nobody else's, and open to nobody else.
func Private(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return CheckPrivate(path)
}

// CheckPrivate is Private for a folder that has to exist.
func CheckPrivate(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder but %s, which somebody else may have put there", path, kind(info))
	case !Mine(info):
		return fmt.Errorf("%s %s", path, Whose(info))
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to others (mode %#o)", path, info.Mode().Perm())
	}
	return nil
}

func kind(info fs.FileInfo) string {
	if info.Mode()&fs.ModeSymlink != 0 {
		return "a link"
	}
	return "a file"
}

// Whose says to whom a file or a folder belongs, as part of a sentence.
func Whose(info fs.FileInfo) string {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("belongs to another user (number %d)", sys.Uid)
	}
	return "belongs to another user"
}

// HasModes says whether the modes of files say anything about other users.
const HasModes = true
