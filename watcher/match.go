package watcher

import (
	"path"
	"strings"

	"rouse/internal/pattern"
)

// rejection is why a watch leaves a file out; none when it takes it.
type rejection struct {
	what    string // what such files are, "" for those of the configuration
	pattern string // that the name matches
	key     string // include or exclude, which decides
}

func (r rejection) none() bool { return r == rejection{} }

// text says it in words: "it is a download that is not finished (*.part)".
func (r rejection) text() string {
	switch {
	case r.none():
		return ""
	case r.what == hiddenFolder.what:
		return "it is in " + r.what + " (" + r.pattern + ")"
	case r.what != "":
		return "it is " + r.what + " (" + r.pattern + "); an include that names such files takes them"
	case r.key == "include":
		return "no include matches its name (" + r.pattern + ")"
	}
	return "exclude leaves it out (" + r.pattern + ")"
}

// selects says whether the watch is for a file, named with slashes and relative to the watched
// folder. Excludes win over includes.
func (w *Watch) selects(rel string) bool { return w.rejects(rel).none() }

// rejects says why the watch is not for a file.
func (w *Watch) rejects(rel string) rejection {
	if r := w.rejectsFolder(path.Dir(rel)); !r.none() {
		return r
	}
	if g, ok := w.firstMatch(w.Exclude, rel); ok {
		return rejection{key: "exclude", pattern: g}
	}
	if n, ok := w.ignoredFile(rel); ok {
		return rejection{what: n.what, pattern: n.pattern}
	}

	if len(w.Include) > 0 && !w.matchesAny(w.Include, rel) {
		return rejection{key: "include", pattern: strings.Join(w.Include, ", ")}
	}
	return rejection{}
}

// prunes says whether a folder is hidden, excluded or an unfinished download, with all that is in it.
func (w *Watch) prunes(rel string) bool { return !w.rejectsFolder(rel).none() }

func (w *Watch) rejectsFolder(rel string) rejection {
	if rel == "." {
		return rejection{}
	}

	if n, ok := w.ignoredFolder(rel); ok {
		return rejection{what: n.what, pattern: n.pattern}
	}
	if g, ok := w.firstMatch(w.Exclude, rel); ok {
		return rejection{key: "exclude", pattern: g}
	}
	return rejection{}
}

func (w *Watch) matchesAny(patterns []string, rel string) bool {
	_, ok := w.firstMatch(patterns, rel)
	return ok
}

// firstMatch is the first pattern that matches a file.
func (w *Watch) firstMatch(patterns []string, rel string) (string, bool) {
	for _, g := range patterns {
		if w.matches(g, rel) {
			return g, true
		}
	}
	return "", false
}

// matches says whether a pattern matches a file as it is written or, unless the watch is exact, in another case.
func (w *Watch) matches(pattern, rel string) bool {
	if matchesExactly(pattern, rel) {
		return true
	}
	if w.ExactCase {
		return false
	}

	folded, name := fold(pattern), fold(rel)
	return (folded != pattern || name != rel) && matchesExactly(folded, name)
}

// matchesExactly reads a pattern without a slash as a name at any depth, and dir as dir/**.
func matchesExactly(glob, rel string) bool {
	glob = strings.TrimSuffix(strings.TrimPrefix(glob, "./"), "/")
	if pattern.Glob(glob, rel) || pattern.Glob(glob+"/**", rel) {
		return true
	}
	return !strings.Contains(glob, "/") && (pattern.Glob("**/"+glob, rel) || pattern.Glob("**/"+glob+"/**", rel))
}
