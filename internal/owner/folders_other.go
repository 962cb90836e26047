//go:build !unix

package owner

import (
	"io/fs"
	"os"
)

// WritableByOthers finds nobody: file modes say nothing about other users here.
func WritableByOthers(string) string { return "" }

// Chmod is never needed.
func Chmod(string) string { return "" }

// Foreign finds nobody.
func Foreign(fs.FileInfo) string { return "" }

// Mine says yes.
func Mine(fs.FileInfo) bool { return true }

// Whose says that it is somebody else's.
func Whose(fs.FileInfo) string { return "belongs to another user" }

// HasModes says whether the modes of files say anything about other users.
const HasModes = false

// Private makes a folder.
func Private(path string) error { return os.MkdirAll(path, 0o700) }

// CheckPrivate checks that a folder exists.
func CheckPrivate(path string) error {
	_, err := os.Lstat(path)
	return err
}
