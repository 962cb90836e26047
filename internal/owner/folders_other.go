//go:build !unix

package owner

import (
	"io/fs"
	"os"
)

// WritableByOthers returns "", because file modes do not describe other users' rights here.
func WritableByOthers(string) string { return "" }

// Chmod returns "", because there is no mode to change.
func Chmod(string) string { return "" }

// Foreign returns "", because file modes do not describe other users' rights here.
func Foreign(fs.FileInfo) string { return "" }

// Mine returns true.
func Mine(fs.FileInfo) bool { return true }

// Whose returns a clause that describes the owner of a file or folder.
func Whose(fs.FileInfo) string { return "belongs to another user" }

// HasModes reports whether file modes describe other users' rights.
const HasModes = false

// Private creates a folder and its parents.
func Private(path string) error { return os.MkdirAll(path, 0o700) }

// CheckPrivate checks that a folder exists.
func CheckPrivate(path string) error {
	_, err := os.Lstat(path)
	return err
}
