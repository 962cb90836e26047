package match

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"rouse/internal/pattern"
)

// ignoredName is a pattern of names that are left out unless an include matches them explicitly.
type ignoredName struct {
	pattern    string // with at most one star, in lower case
	what       string // kind of file
	folders    bool   // whether folders with such a name are left out as well
	start, end string // parts of the pattern before and after its star
	star       bool
}

func ignoredNamed(what string, folders bool, patterns ...string) []ignoredName {
	out := make([]ignoredName, len(patterns))
	for i, pattern := range patterns {
		out[i] = ignoredName{pattern: pattern, what: what, folders: folders}
		out[i].start, out[i].end, out[i].star = strings.Cut(pattern, "*")
	}
	return out
}

const (
	unfinished = "a download that is not finished"
	temporary  = "a temporary file, which its program renames once it is complete"
	editor     = "an editor's own file"
	office     = "a lock or owner file of an office program"
	system     = "a file of the system's own"
)

// ignoredNames lists the names of files that a program is still writing, and of files that programs
// and systems use internally. Safari creates a folder for each download. The folder contains the
// unfinished file under its final name.
var ignoredNames = slices.Concat(
	ignoredNamed(unfinished, true, "*.part", "*.partial", "*.crdownload", "*.opdownload", "*.download", "*.filepart"),
	ignoredNamed(temporary, false, "*.tmp"),
	ignoredNamed(editor, false, "*.swp", "*.swo", "*~", "#*#", "4913"),
	ignoredNamed(office, false, "~$*", ".~lock*"),
	ignoredNamed(system, false, "thumbs.db", "desktop.ini", ".ds_store"),
	ignoredNamed("a hidden file", false, ".*"),
)

var hiddenFolder = ignoredName{pattern: ".*", what: "a hidden folder"}

// ignores reports whether a name in lower case matches the pattern.
func (n *ignoredName) ignores(name string) bool {
	if !n.star {
		return name == n.pattern
	}
	return len(name) >= len(n.start)+len(n.end) && strings.HasPrefix(name, n.start) && strings.HasSuffix(name, n.end)
}

// ignoredFile returns the ignored name that matches a file, if any. An include that itself looks
// like an ignored name ("*.tmp", ".env") selects the files it matches.
func (f *Filter) ignoredFile(rel string) (ignoredName, bool) {
	base := fold(path.Base(rel))
	for i := range ignoredNames {
		if n := &ignoredNames[i]; n.ignores(base) && !f.includesExplicitly(n, rel) {
			return *n, true
		}
	}
	return ignoredName{}, false
}

// ignoredFolder returns the ignored name that matches a folder or one of its parents, if any. An
// include cannot select files in a hidden folder.
func (f *Filter) ignoredFolder(rel string) (ignoredName, bool) {
	for name := range strings.SplitSeq(rel, "/") {
		if strings.HasPrefix(name, ".") && name != "." {
			return hiddenFolder, true
		}

		name = fold(name)
		for i := range ignoredNames {
			if n := &ignoredNames[i]; n.folders && n.ignores(name) && !f.includesFolder(n) {
				return *n, true
			}
		}
	}
	return ignoredName{}, false
}

// includesExplicitly reports whether a file matches an include with an ignored name as its last
// part.
func (f *Filter) includesExplicitly(n *ignoredName, rel string) bool {
	for _, g := range f.Include {
		for _, one := range alternatives(g) {
			if n.ignores(fold(path.Base(one))) && f.matches(one, rel) {
				return true
			}
		}
	}
	return false
}

// includesFolder reports whether an include names folders with an ignored name.
func (f *Filter) includesFolder(n *ignoredName) bool {
	for _, g := range f.Include {
		for _, one := range alternatives(g) {
			for part := range strings.SplitSeq(strings.TrimPrefix(one, "./"), "/") {
				if n.ignores(fold(part)) {
					return true
				}
			}
		}
	}
	return false
}

// maxAlternatives limits the alternatives of a pattern with many braces.
const maxAlternatives = 256

// alternatives expands the braces of a pattern: *.{tmp,csv} becomes *.tmp and *.csv. A pattern with
// too many alternatives is returned unchanged.
func alternatives(pattern string) []string {
	out := []string{pattern}
	for i := 0; i < len(out); {
		before, choices, after, ok := cutBraces(out[i])
		if !ok {
			i++
			continue
		}

		if len(out)+len(choices) > maxAlternatives {
			return []string{pattern}
		}
		out = append(out[:i], out[i+1:]...)
		for _, c := range choices {
			out = append(out, before+c+after)
		}
	}
	return out
}

// cutBraces splits a pattern at its first braces and at the commas directly inside them. An escaped
// brace, or a brace in brackets, is an ordinary character.
func cutBraces(pattern string) (before string, choices []string, after string, ok bool) {
	depth, start, from := 0, 0, 0
	class := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '{':
			if depth++; depth == 1 {
				start, from = i, i+1
			}
		case c == ',' && depth == 1:
			choices, from = append(choices, pattern[from:i]), i+1
		case c == '}' && depth > 0:
			if depth--; depth == 0 {
				return pattern[:start], append(choices, pattern[from:i]), pattern[i+1:], true
			}
		}
	}
	return "", nil, "", false
}

// fold returns a form of a name that ignores its case and its Unicode normalization form.
func fold(name string) string {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return strings.Map(foldRune, pattern.Name(name))
		}
	}
	return name // most names need no change
}

func foldRune(r rune) rune {
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	if least < utf8.RuneSelf {
		return unicode.ToLower(least)
	}
	return least
}

// IsUnfinished reports whether a name is the name of an unfinished download.
func IsUnfinished(name string) bool {
	name = fold(name)
	return slices.ContainsFunc(ignoredNames, func(n ignoredName) bool { return n.what == unfinished && n.ignores(name) })
}

// IsPartialOf reports whether a name is the name of the unfinished download of a file.
func IsPartialOf(name, file string) bool {
	name, file = fold(name), fold(file)
	for _, n := range ignoredNames {
		whole, cut := strings.CutSuffix(name, n.end)
		switch {
		case !cut || n.what != unfinished:
		case whole == file:
			return true
		default:
			// The random part is before the first dot of the name and contains no dot.
			stem, rest, dotted := strings.Cut(file, ".")
			random, begins := strings.CutPrefix(whole, stem+".")
			if dotted {
				random, cut = strings.CutSuffix(random, "."+rest)
			}
			if begins && cut && random != "" && !strings.Contains(random, ".") {
				return true
			}
		}
	}
	return false
}
