// Package pattern matches file names against globs, in the composed form of Unicode.
package pattern

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/text/unicode/norm"
)

// Glob reports whether a glob of doublestar matches a path with slashes. A broken glob matches nothing. Both are compared in
// the composed form (see Name).
func Glob(glob, path string) bool {
	ok, err := doublestar.Match(Name(glob), Name(path))
	return err == nil && ok
}

// Name returns a file name in the composed form of Unicode (NFC), to compare it with another name. A keyboard writes ü as one
// character, and a file from a Mac has it as u and two dots. To open or move a file, use the name that the system has.
func Name(name string) string { return norm.NFC.String(name) }

// EqualName reports whether two file names are the same except for their case and their form.
func EqualName(a, b string) bool { return strings.EqualFold(Name(a), Name(b)) }
