package match

import (
	"path"
	"strings"

	"rouse/internal/pattern"
)

// Filter selects files by their names, relative to the watched folder and with slashes.
type Filter struct {
	// A pattern without a slash matches at any depth, and dir means dir/**.
	Include, Exclude []string
	ExactCase        bool // whether case matters: *.pdf does not match SCAN.PDF
}

// Rejection is the reason why a filter leaves a file out. It is zero if the filter selects the
// file.
type Rejection struct {
	what    string // kind of file, "" if a configured pattern decides
	pattern string // pattern that matches, or the include patterns that do not match
	key     string // setting that decides: include or exclude
}

func (r Rejection) none() bool { return r == Rejection{} }

// String returns a sentence such as "it is a download that is not finished (*.part)".
func (r Rejection) String() string {
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

// Selects reports whether the filter selects a file. Excludes win over includes.
func (f *Filter) Selects(rel string) bool { return f.Rejects(rel).none() }

// Rejects returns the reason why the filter leaves a file out, or the zero Rejection if it selects
// the file.
func (f *Filter) Rejects(rel string) Rejection {
	if r := f.rejectsFolder(path.Dir(rel)); !r.none() {
		return r
	}
	if g, ok := f.firstMatch(f.Exclude, rel); ok {
		return Rejection{key: "exclude", pattern: g}
	}
	if n, ok := f.ignoredFile(rel); ok {
		return Rejection{what: n.what, pattern: n.pattern}
	}

	if _, ok := f.firstMatch(f.Include, rel); !ok && len(f.Include) > 0 {
		return Rejection{key: "include", pattern: strings.Join(f.Include, ", ")}
	}
	return Rejection{}
}

// Prunes reports whether a folder is left out with everything in it: it is hidden, excluded or an
// unfinished download.
func (f *Filter) Prunes(rel string) bool { return !f.rejectsFolder(rel).none() }

func (f *Filter) rejectsFolder(rel string) Rejection {
	if rel == "." {
		return Rejection{}
	}

	if n, ok := f.ignoredFolder(rel); ok {
		return Rejection{what: n.what, pattern: n.pattern}
	}
	if g, ok := f.firstMatch(f.Exclude, rel); ok {
		return Rejection{key: "exclude", pattern: g}
	}
	return Rejection{}
}

// Excludes reports whether an exclude pattern matches a file.
func (f *Filter) Excludes(rel string) bool {
	_, ok := f.firstMatch(f.Exclude, rel)
	return ok
}

// firstMatch returns the first pattern that matches a file.
func (f *Filter) firstMatch(patterns []string, rel string) (string, bool) {
	for _, g := range patterns {
		if f.matches(g, rel) {
			return g, true
		}
	}
	return "", false
}

// matches reports whether a pattern matches a file. Unless ExactCase is set, it ignores the case.
func (f *Filter) matches(pattern, rel string) bool {
	if matchesExactly(pattern, rel) {
		return true
	}
	if f.ExactCase {
		return false
	}

	folded, name := fold(pattern), fold(rel)
	return (folded != pattern || name != rel) && matchesExactly(folded, name)
}

// matchesExactly reports whether a pattern matches a file in the same case. A pattern without a
// slash matches a name at any depth, and dir means dir/**.
func matchesExactly(glob, rel string) bool {
	glob = strings.TrimSuffix(strings.TrimPrefix(glob, "./"), "/")
	if pattern.Glob(glob, rel) || pattern.Glob(glob+"/**", rel) {
		return true
	}
	return !strings.Contains(glob, "/") && (pattern.Glob("**/"+glob, rel) || pattern.Glob("**/"+glob+"/**", rel))
}
