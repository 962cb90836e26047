package file

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

func validGlob(glob string) bool { return doublestar.ValidatePattern(glob) }

// globMatcher says which paths a glob means: by their names alone, or as a whole when it has a slash
// in it. It does not tell capitals from small letters; "" means all.
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
		ok, err := doublestar.Match(glob, strings.ToLower(rel))
		return err == nil && ok
	}
}
