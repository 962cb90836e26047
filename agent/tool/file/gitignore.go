package file

import (
	"io"
	"os"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/internal/pattern"
)

// The gitignore package of go-git is not used because it does not support [!a]. TestIgnoresAsGit
// compares these rules with git.

// maxIgnores limits the bytes read of a .gitignore file.
const maxIgnores = 64 << 10

// ignoreRules holds the rules of a .gitignore file, linked to those of the folders above. A nil
// pointer has no rules.
type ignoreRules struct {
	above *ignoreRules
	// base is the folder of the file relative to the start of the walk. It is "." if prefix is set.
	base string
	// prefix is the path from the folder of the file to the start of the walk. It is "" unless the
	// folder is above the start.
	prefix string
	rules  []rule
}

type rule struct {
	glob        string
	negated     bool // !pattern
	foldersOnly bool // pattern/
}

// readIgnores adds the rules of a folder's .gitignore. It returns above if the file cannot be read.
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

// trimRule removes the line end and unescaped blanks before it.
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
	if !strings.Contains(line, "/") { // matches in every folder below
		line = "**/" + line
	}

	// a/** means the content of a folder. In doublestar it also matches the folder itself.
	if strings.HasSuffix(line, "/**") {
		line += "/*"
	}

	// doublestar expands braces, which .gitignore does not.
	r.glob = strings.NewReplacer("{", `\{`, "}", `\}`).Replace(strings.TrimPrefix(line, "/"))
	return r, r.glob != "**/" && doublestar.ValidatePattern(r.glob)
}

// ignored reports whether an entry is ignored. As in git, the innermost .gitignore with a matching
// rule decides. Within one file, the last matching rule decides.
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

// generated reports whether a folder contains generated files. beside reports whether a file is in
// the same folder: target belongs to Cargo only next to a Cargo.toml.
func generated(name string, beside func(string) bool) bool {
	return alwaysIgnored(name) || name == "target" && beside("Cargo.toml")
}
