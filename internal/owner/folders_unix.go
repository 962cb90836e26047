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

// WritableByOthers returns a clause that explains how another user could change a file or folder.
// The other user may own or be able to write it or a folder above it. It returns "" if there is no
// such way or the path does not exist.
func WritableByOthers(path string) string {
	_, why := writableByOthers(path)
	return why
}

// Chmod returns the command that removes the write permission that WritableByOthers found. It
// returns "" if there is no such permission, or if another user (including root) owns the file.
func Chmod(path string) string {
	at, why := writableByOthers(path)
	if info, err := os.Stat(at); why == "" || err != nil || !Mine(info) {
		return ""
	}
	return "chmod go-w " + at
}

// writableByOthers is like WritableByOthers, but also returns the file or folder with the problem.
func writableByOthers(path string) (fault, why string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", ""
	}

	for at, above := path, false; ; at, above = filepath.Dir(at), true {
		info, err := os.Stat(at)
		if err != nil {
			return "", "" // later access to the path reports the error
		}

		// The sticky bit protects the content of a folder, not the folder itself.
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

// Foreign returns a clause that explains how another user could change this file or folder. It
// ignores the folders above it.
func Foreign(info fs.FileInfo) string { return foreign(info, false) }

func foreign(info fs.FileInfo, above bool) string {
	sys, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return ""
	case sys.Uid != 0 && int(sys.Uid) != os.Geteuid():
		// Root can change every file, so files of root are safe.
		return fmt.Sprintf("belongs to another user (number %d)", sys.Uid)
	case info.Mode()&fs.ModeSymlink != 0 || above && info.Mode()&fs.ModeSticky != 0:
		return "" // a link has no mode of its own; the sticky bit protects names in a folder
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Sprintf("may be written by everybody (mode %#o)", info.Mode().Perm())
	case info.Mode().Perm()&0o020 != 0 && sys.Gid != 0 && sys.Gid != sys.Uid:
		return fmt.Sprintf("may be written by its group (mode %#o)", info.Mode().Perm())
	}

	return ""
}

// Mine reports whether a file or folder belongs to the user of this process.
func Mine(info fs.FileInfo) bool {
	sys, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(sys.Uid) == os.Geteuid()
}

// Private creates a folder for this user alone if it is missing, and checks it with CheckPrivate.
// It is for places in which other users can create names.
func Private(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return CheckPrivate(path)
}

// CheckPrivate returns an error unless path is a folder, not a link, that only this user can
// access.
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

// Whose returns a clause that describes the owner of a file or folder.
func Whose(info fs.FileInfo) string {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("belongs to another user (number %d)", sys.Uid)
	}
	return "belongs to another user"
}

// HasModes reports whether file modes describe other users' rights.
const HasModes = true
