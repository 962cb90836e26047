package watcher

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// unfinished are names that programs give to files they are still writing, and hidden
// files. An include that is itself such a name ("*.tmp", ".env") selects them all the same.
var unfinished = []string{"*.part", "*.crdownload", "*.filepart", "*.tmp", "*~", "*.swp", "4913", ".*"}

// selects says whether the watch is for a file, named with slashes and relative to the watched
// folder. Excludes win over includes.
func (w *Watch) selects(rel string) bool {
	if w.prunes(path.Dir(rel)) || matchesAny(w.Exclude, rel) {
		return false
	}

	base := path.Base(rel)
	for _, g := range unfinished {
		if matchesSimple(g, base) && !w.includesExplicitly(g, rel) {
			return false
		}
	}
	return len(w.Include) == 0 || matchesAny(w.Include, rel)
}

// matchesSimple is a fast glob for the patterns of unfinished names, which a scan tries on each
// file: they have one star, first or last, or none.
func matchesSimple(pattern, name string) bool {
	if end, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(name, end)
	}
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, start)
	}
	return name == pattern
}

// includesExplicitly says whether an include that itself looks like an ignored name ("*.tmp")
// matches a file, which the default pattern would leave out.
func (w *Watch) includesExplicitly(ignored, rel string) bool {
	for _, g := range w.Include {
		if glob(ignored, path.Base(g)) && matches(g, rel) {
			return true
		}
	}
	return false
}

// prunes says whether a folder is hidden or excluded with all that is in it.
func (w *Watch) prunes(rel string) bool {
	if rel == "." {
		return false
	}

	for part := range strings.SplitSeq(rel, "/") {
		if strings.HasPrefix(part, ".") {
			return true
		}
	}
	return matchesAny(w.Exclude, rel)
}

func matchesAny(patterns []string, rel string) bool {
	for _, g := range patterns {
		if matches(g, rel) {
			return true
		}
	}
	return false
}

// matches reads a pattern without a slash as a name at any depth, and dir as dir/**.
func matches(pattern, rel string) bool {
	pattern = strings.TrimSuffix(strings.TrimPrefix(pattern, "./"), "/")
	if glob(pattern, rel) || glob(pattern+"/**", rel) {
		return true
	}
	return !strings.Contains(pattern, "/") && (glob("**/"+pattern, rel) || glob("**/"+pattern+"/**", rel))
}

func glob(pattern, name string) bool {
	ok, err := doublestar.Match(pattern, name) // Set refuses a broken pattern
	return err == nil && ok
}
