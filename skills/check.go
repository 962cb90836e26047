package skills

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"golang.org/x/text/unicode/norm"
)

// The limits of the standard, in characters (AGS-01).
const (
	maxName          = 64
	maxDescription   = 1024
	maxCompatibility = 500
)

// knownFields are the fields that the standard has.
var knownFields = []string{"allowed-tools", "compatibility", "description", "license", "metadata", "name"}

// Validate checks the skill of a directory: its SKILL.md against the whole standard (AGS-01, AGS-03), its
// program against the rules for manifests (OSL-05). It returns everything that breaks them, file by
// file, in the order of each; a skill is valid if none of it is more than a warning.
func Validate(dir string) []Problem {
	real, problems := resolveDir(dir)
	if len(problems) > 0 {
		return problems
	}

	instructions, program := hasInstructions(real), isProgram(real)
	if instructions || !program {
		problems = validateInstructions(real)
		program = hasProgram(real) // other tools have a manifest.json of their own
	}
	if program {
		problems = append(problems, validateProgram(real)...)
	}
	return append(problems, refusedEntries(real, problems)...)
}

// refusedEntries warns of entries for which an installation of the skill is refused, unless they are known for a problem.
func refusedEntries(real string, known []Problem) (out []Problem) {
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil // reported for its SKILL.md
	}
	defer root.Close()
	for f, err := range Walk(root) {
		at := filepath.Join(real, filepath.FromSlash(f.Path))
		switch {
		case err != nil:
			out = append(out, warning(at, RuleEntry, "cannot be read: %v", withoutPath(err)))
		case slices.ContainsFunc(known, func(p Problem) bool { return p.File == at }):
		case f.Refused != "" && f.Path != ".git": // its author works on it in a repository
			out = append(out, warning(at, RuleEntry, "is refused when the skill is installed or trusted: %s", f.Refused))
		}
	}
	return out
}

// validateInstructions checks the SKILL.md of a resolved directory.
func validateInstructions(real string) []Problem {
	file, text, problems := readSkillFile(real, MaxFile)
	if len(problems) > 0 {
		return problems
	}

	head, problems := parseFrontmatter(file, text, false)
	if head == nil {
		return problems
	}

	if !utf8.Valid(text) {
		problems = append(problems, problem(file, RuleEncoding, "is not UTF-8 text; save it as UTF-8")...)
	}

	if bytes.HasPrefix(text, bom) {
		problems = append(problems, Problem{File: file, Line: 1, Rule: RuleEncoding, Message: "begins with a byte order mark, where the standard wants ---; save it as UTF-8 without one"})
	}

	c := checker{file: file, frontmatter: head}
	c.checkStyle()
	c.skill(filepath.Base(filepath.Dir(file)))
	problems = append(problems, c.problems...)
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })

	return problems
}

// checker reads the fields of one skill and reports what is wrong with them.
type checker struct {
	file        string
	frontmatter *frontmatter
	lenient     bool
	problems    []Problem
}

// violation reports what only Validate refuses.
func (c *checker) violation(at field, rule Rule, format string, args ...any) {
	c.problems = append(c.problems, Problem{File: c.file, Line: at.line, Column: at.column, Rule: rule, Message: fmt.Sprintf(format, args...), Warning: c.lenient})
}

// fatal reports what makes a skill unusable, for a lenient reader too.
func (c *checker) fatal(at field, rule Rule, format string, args ...any) {
	c.violation(at, rule, format, args...)
	c.problems[len(c.problems)-1].Warning = false
}

// skill reads the fields. dir is the name of the skill's directory.
func (c *checker) skill(dir string) *Skill {
	s := &Skill{}
	for _, f := range c.frontmatter.fields {
		if !slices.Contains(knownFields, f.key) {
			c.violation(f, RuleFieldUnknown, "%s is not a field of a skill; those are %s. What is your own belongs under metadata", f.key, strings.Join(knownFields, ", "))
		}
	}

	s.Name = c.name(dir)
	s.Description = c.description()
	if f, ok := c.frontmatter.lookup("license"); ok {
		s.License, _ = f.text()
	}

	s.Compatibility = c.compatibility()
	if f, ok := c.frontmatter.lookup("metadata"); ok {
		s.Metadata, _ = stringMap(f.node)
	}

	s.AllowedTools = c.allowedTools()
	return s
}

// text returns the value of a field as text, or "" if the field is missing or no text. The field is then
// the first line of the file.
func (c *checker) text(key string) (field, string) {
	f, ok := c.frontmatter.lookup(key)
	if !ok {
		return field{line: 1}, ""
	}
	text, _ := f.text()
	return f, strings.TrimSpace(text)
}

// name returns the name of the skill. A lenient reader keeps a name that breaks rules, and uses the name of
// the directory if there is none (YOA-06, C-10).
func (c *checker) name(dir string) string {
	f, text := c.text("name")
	name := norm.NFKC.String(text)
	if name == "" {
		c.violation(f, RuleNameMissing, "the name is missing; write name: %s", dir)
		if c.lenient {
			return norm.NFKC.String(dir)
		}
		return ""
	}

	if strings.ContainsFunc(name, unicode.IsControl) { // could forge lines of the lists that models and people read
		c.fatal(f, RuleNameCharacters, "the name %q holds control characters", name)
		return name
	}

	if n := utf8.RuneCountInString(name); n > maxName {
		c.violation(f, RuleNameLength, "the name has %d characters, and %d are the most", n, maxName)
	}

	if name != strings.ToLower(name) {
		c.violation(f, RuleNameCase, "the name %q must be in small letters", name)
	}

	if strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") || strings.Contains(name, "--") {
		c.violation(f, RuleNameHyphen, "the name %q must not begin or end with a hyphen or hold two in a row", name)
	}

	if strings.ContainsFunc(name, func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
		c.violation(f, RuleNameCharacters, "the name %q may hold letters, digits and hyphens only", name)
	}

	if want := norm.NFKC.String(dir); want != name {
		c.violation(f, RuleNameDirectory, "the name %q must be that of its directory, %q", name, dir)
	}

	return name
}

func (c *checker) description() string {
	f, text := c.text("description")
	if text == "" {
		c.fatal(f, RuleDescriptionMissing, "the description is missing; it says what the skill does and when to use it, and is all that a model sees before it chooses")
		return ""
	}

	if n := utf8.RuneCountInString(text); n > maxDescription {
		c.violation(f, RuleDescriptionLength, "the description has %d characters, and %d are the most", n, maxDescription)
	}

	return text
}

func (c *checker) compatibility() string {
	f, ok := c.frontmatter.lookup("compatibility")
	if !ok {
		return ""
	}

	text, scalar := f.text()
	if !scalar {
		c.violation(f, RuleCompatibilityType, "compatibility must be one text, not a list")
		return flatten(f.node)
	}

	if n := utf8.RuneCountInString(text); n > maxCompatibility {
		c.violation(f, RuleCompatibilityLength, "compatibility has %d characters, and %d are the most", n, maxCompatibility)
	}

	return text
}

// allowedTools is the list of patterns, separated by spaces as the standard wants, or, as others write
// it, by commas or as a YAML list (AGS-13).
func (c *checker) allowedTools() []string {
	f, ok := c.frontmatter.lookup("allowed-tools")
	if !ok {
		return nil
	}

	var items []string
	if text, scalar := f.text(); scalar {
		items = patterns(text)
	} else {
		for _, n := range f.node.Content {
			items = append(items, patterns(flatten(n))...)
		}
	}

	return items
}

// patterns splits at spaces and commas outside of parentheses: "Bash(git add *) Read".
func patterns(text string) []string {
	depth := 0
	return strings.FieldsFunc(text, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return depth == 0 && (r == ',' || unicode.IsSpace(r))
	})
}

// checkStyle reports YAML that the standard's reader refuses: lists and mappings in brackets,
// anchors, tags.
func (c *checker) checkStyle() {
	for _, f := range c.frontmatter.fields {
		c.checkNodeStyle(f, f.node)
	}
}

func (c *checker) checkNodeStyle(f field, n *yaml.Node) {
	// The frontmatter begins in the second line of the file.
	at := field{line: n.Line + 1, column: n.Column}
	switch {
	case n.Kind != yaml.ScalarNode && n.Style&yaml.FlowStyle != 0:
		c.violation(at, RuleYAMLStyle, "%s: lists and mappings in brackets are not part of the standard's YAML; write one item a line", f.key)
		return
	case n.Anchor != "" || n.Kind == yaml.AliasNode:
		c.violation(at, RuleYAMLStyle, "%s: anchors and references are not part of the standard's YAML; write the value out", f.key)
		return
	case n.Style&yaml.TaggedStyle != 0:
		c.violation(at, RuleYAMLStyle, "%s: tags are not part of the standard's YAML; leave %s out", f.key, n.Tag)
	}

	for _, child := range n.Content {
		c.checkNodeStyle(f, child)
	}
}
