package file

import (
	"io"
	"os"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/internal/pattern"
)

// The gitignore package of go-git (5.19) is not used: it does not know [!a]. Of 18,000 random paths
// it treated 320 differently from git; these rules treat none so, which TestIgnoresAsGit checks.

// maxIgnores bounds the bytes of a .gitignore that are read.
const maxIgnores = 64 << 10

// ignoreRules are the rules of a .gitignore and of those above it. nil has none.
type ignoreRules struct {
	above  *ignoreRules
	base   string // the folder of the file, relative to where the walk began: "." is there
	prefix string // the path from the folder of the file to where the walk began, when it is further up
	rules  []rule
}

type rule struct {
	glob        string
	negated     bool // !pattern
	foldersOnly bool // pattern/
}

// readIgnores adds the rules of a folder's .gitignore, if it can be read.
func readIgnores(dir *os.Root, base string, above *ignoreRules) *ignoreRules {
	f, err := openToRead(dir, ".gitignore")
	if err != nil {
		return above
	}
	defer f.Close()

	text, err := io.ReadAll(io.LimitReader(f, maxIgnores))
	if err != nil {
		return above
	}

	in := &ignoreRules{above: above, base: base}
	for line := range strings.Lines(string(text)) {
		if r, ok := parseRule(trimRule(line)); ok {
			in.rules = append(in.rules, r)
		}
	}
	if len(in.rules) == 0 {
		return above
	}

	return in
}

// trimRule removes the end of a line and unescaped blanks before it.
func trimRule(line string) string {
	line = strings.TrimRight(line, "\r\n")
	for strings.HasSuffix(line, " ") {
		before := strings.TrimSuffix(line, " ")
		if escapes := len(before) - len(strings.TrimRight(before, `\`)); escapes%2 == 1 {
			break
		}
		line = before
	}
	return line
}

func parseRule(line string) (r rule, ok bool) {
	if line == "" || line[0] == '#' {
		return r, false
	}

	line, r.negated = strings.CutPrefix(line, "!")
	line, r.foldersOnly = strings.CutSuffix(line, "/")
	if !strings.Contains(line, "/") { // of any folder below
		line = "**/" + line
	}

	// What is in a folder, and not the folder: for doublestar a/** is a as well.
	if strings.HasSuffix(line, "/**") {
		line += "/*"
	}

	// doublestar has alternatives in braces, which .gitignore does not.
	r.glob = strings.NewReplacer("{", `\{`, "}", `\}`).Replace(strings.TrimPrefix(line, "/"))
	return r, r.glob != "**/" && doublestar.ValidatePattern(r.glob)
}

// ignored reports whether an entry is left out. As in git, the innermost .gitignore with a matching
// rule decides, and of its rules the last one.
func (in *ignoreRules) ignored(rel string, folder bool) bool {
	for ; in != nil; in = in.above {
		name := in.prefix + rel
		if in.base != "." {
			name = strings.TrimPrefix(rel, in.base+"/")
		}

		for i := len(in.rules) - 1; i >= 0; i-- {
			r := in.rules[i]
			if r.foldersOnly && !folder {
				continue
			}
			if pattern.Glob(r.glob, name) {
				return !r.negated
			}
		}
	}
	return false
}

// generated reports whether programs fill a folder. beside reports whether a file lies next to it:
// target is Cargo's only next to a Cargo.toml.
func generated(name string, beside func(string) bool) bool {
	return alwaysIgnored(name) || name == "target" && beside("Cargo.toml")
}
