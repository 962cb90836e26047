package watcher

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"rouse/internal/pattern"
)

// ignoredName is a name that no watch takes unless an include asks for it.
type ignoredName struct {
	pattern    string // with one star, or none; lower case
	what       string // such a file
	folders    bool   // what is in a folder of that name is left out as well
	start, end string // of the pattern, before and after its star
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

// ignoredNames are those that programs give to what they are still writing, and to files of their own. Safari has a
// folder for each download, with the unfinished file in it under its last name.
var ignoredNames = slices.Concat(
	ignoredNamed(unfinished, true, "*.part", "*.partial", "*.crdownload", "*.opdownload", "*.download", "*.filepart"),
	ignoredNamed(temporary, false, "*.tmp"),
	ignoredNamed(editor, false, "*.swp", "*.swo", "*~", "#*#", "4913"),
	ignoredNamed(office, false, "~$*", ".~lock*"),
	ignoredNamed(system, false, "thumbs.db", "desktop.ini", ".ds_store"),
	ignoredNamed("a hidden file", false, ".*"),
)

var hiddenFolder = ignoredName{pattern: ".*", what: "a hidden folder"}

// ignores says whether a file or folder of a name, in lower case, is one of those.
func (n *ignoredName) ignores(name string) bool {
	if !n.star {
		return name == n.pattern
	}
	return len(name) >= len(n.start)+len(n.end) && strings.HasPrefix(name, n.start) && strings.HasSuffix(name, n.end)
}

// ignoredFile says for which kind of name a file is left out, false where it is not. An include that itself looks like
// such a name ("*.tmp", ".env") takes the files that it matches all the same.
func (w *Watch) ignoredFile(rel string) (ignoredName, bool) {
	base := fold(path.Base(rel))
	for i := range ignoredNames {
		if n := &ignoredNames[i]; n.ignores(base) && !w.includesExplicitly(n, rel) {
			return *n, true
		}
	}
	return ignoredName{}, false
}

// ignoredFolder says the same of a folder, and of those that it is in. No include opens a hidden one.
func (w *Watch) ignoredFolder(rel string) (ignoredName, bool) {
	for name := range strings.SplitSeq(rel, "/") {
		if strings.HasPrefix(name, ".") && name != "." {
			return hiddenFolder, true
		}

		name = fold(name)
		for i := range ignoredNames {
			if n := &ignoredNames[i]; n.folders && n.ignores(name) && !w.includesFolder(n) {
				return *n, true
			}
		}
	}
	return ignoredName{}, false
}

// includesExplicitly says whether an include whose last part is itself such a name matches a file.
func (w *Watch) includesExplicitly(n *ignoredName, rel string) bool {
	for _, g := range w.Include {
		for _, one := range alternatives(g) {
			if n.ignores(fold(path.Base(one))) && w.matches(one, rel) {
				return true
			}
		}
	}
	return false
}

// includesFolder says whether an include names folders of such a name on its way.
func (w *Watch) includesFolder(n *ignoredName) bool {
	for _, g := range w.Include {
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

// maxAlternatives bounds what is made of a pattern with many braces.
const maxAlternatives = 256

// alternatives are the patterns without braces that a pattern stands for: *.{tmp,csv} is *.tmp and *.csv. One that stands
// for too many is left as it is.
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

// cutBraces cuts a pattern at its first braces, and at the commas within them that are not in other braces. An escaped
// character, or one in brackets, is no brace.
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

// fold returns a name that is the same for two names that differ only in case, or in their form of Unicode.
func fold(name string) string {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return strings.Map(foldRune, pattern.Name(name))
		}
	}
	return name // as most are
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
