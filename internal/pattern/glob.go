// Package pattern matches file names against globs, in the composed form of Unicode.
package pattern

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/text/unicode/norm"
)

// Glob reports whether a doublestar glob matches a path with slashes. A malformed glob does not
// match anything. Both are compared in the composed form (see Name).
func Glob(glob, path string) bool {
	ok, err := doublestar.Match(Name(glob), Name(path))
	return err == nil && ok
}

// Name returns a file name in the composed form of Unicode (NFC), for comparison with another name.
// A keyboard produces ü as one character, but files from a Mac have it as u and two dots. To open
// or move a file, use its original name.
func Name(name string) string { return norm.NFC.String(name) }

// EqualName reports whether two file names differ only in case and Unicode form.
func EqualName(a, b string) bool { return strings.EqualFold(Name(a), Name(b)) }
