package watcher

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// unfinished are names that programs give to files they are still writing.
var unfinished = []string{"*.part", "*.crdownload", "*.filepart", "*.tmp", "*~", "*.swp", "4913", ".*"}

// takes says whether a path, slash-separated and relative to the watched folder, is one
// that the watch is for. Excludes win.
func (w *Watch) takes(rel string) bool {
	if w.prunes(rel) {
		return false
	}
	for _, g := range unfinished {
		if ok, err := doublestar.Match(g, path.Base(rel)); err == nil && ok {
			return false
		}
	}
	if len(w.Include) == 0 {
		return true
	}
	for _, g := range w.Include {
		if matches(g, rel) {
			return true
		}
	}
	return false
}

// prunes says whether a path, file or folder, is excluded with all that is in it.
func (w *Watch) prunes(rel string) bool {
	for _, part := range strings.Split(rel, "/") {
		if strings.HasPrefix(part, ".") && part != "." {
			return true
		}
	}
	for _, g := range w.Exclude {
		if matches(g, rel) {
			return true
		}
	}
	return false
}

// matches takes a pattern without a slash for a name anywhere, and dir for dir/**.
func matches(glob, rel string) bool {
	glob = strings.TrimSuffix(strings.TrimPrefix(glob, "./"), "/")
	patterns := []string{glob, glob + "/**"}
	if !strings.Contains(glob, "/") {
		patterns = append(patterns, "**/"+glob, "**/"+glob+"/**")
	}
	for _, p := range patterns {
		if ok, err := doublestar.Match(p, rel); err == nil && ok {
			return true
		}
	}
	return false
}
