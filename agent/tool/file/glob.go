package file

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/internal/pattern"
)

func validGlob(glob string) bool { return doublestar.ValidatePattern(glob) }

// globMatcher reports which paths a glob matches: their names, or the whole paths if the glob has a
// slash. Case does not matter; "" matches all.
func globMatcher(glob string) func(rel string) bool {
	if glob == "" {
		return func(string) bool { return true }
	}

	glob = strings.ToLower(glob)
	whole := strings.Contains(glob, "/")
	return func(rel string) bool {
		if !whole {
			rel = rel[strings.LastIndexByte(rel, '/')+1:]
		}
		return pattern.Glob(glob, strings.ToLower(rel))
	}
}
