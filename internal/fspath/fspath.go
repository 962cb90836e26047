// Package fspath compares paths by their names, without accessing the file system or resolving
// links.
package fspath

import (
	"cmp"
	"path/filepath"
	"strings"
)

// Rel returns path relative to folder, or "." for the folder itself. It returns false if path is
// outside of folder, or if only one of the two is absolute.
func Rel(folder, path string) (string, bool) {
	rel, err := filepath.Rel(folder, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", false
	}
	return rel, true
}

// Within reports whether path is folder or inside it.
func Within(path, folder string) bool {
	_, ok := Rel(folder, path)
	return ok
}

// Shorten returns path relative to folder if path is inside folder, and path otherwise.
func Shorten(folder, path string) string {
	if rel, ok := Rel(folder, path); ok {
		return rel
	}
	return path
}

// Real resolves the links in the part of a path that exists.
func Real(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil || path == filepath.Dir(path) {
		return cmp.Or(real, path)
	}
	return filepath.Join(Real(filepath.Dir(path)), filepath.Base(path))
}
