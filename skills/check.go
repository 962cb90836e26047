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

// Limits of the AgentSkills standard, in characters.
const (
	maxName          = 64
	maxDescription   = 1024
	maxCompatibility = 500
)

// knownFields are the frontmatter fields of the standard.
var knownFields = []string{"allowed-tools", "compatibility", "description", "license", "metadata", "name"}

// Validate checks the skill in dir. It checks SKILL.md against the whole standard and a program
// against the rules for manifests. It returns all problems, file by file and in file order. A skill
// is valid if every problem is a warning.
func Validate(dir string) []Problem {
	real, problems := resolveDir(dir)
	if len(problems) > 0 {
		return problems
	}

	instructions, program := hasInstructions(real), isProgram(real)
	if instructions || !program {
		problems = validateInstructions(real)
		program = hasProgram(real) // a manifest.json alone may belong to another tool
	}
	if program {
		problems = append(problems, validateProgram(real)...)
	}
	return append(problems, refusedEntries(real, problems)...)
}

// refusedEntries warns about entries that prevent installation of the skill. It skips entries for
// which a problem is already known.
func refusedEntries(real string, known []Problem) (out []Problem) {
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil // already reported for SKILL.md
	}
	defer root.Close()
	for f, err := range Walk(root) {
		at := filepath.Join(real, filepath.FromSlash(f.Path))
		switch {
		case err != nil:
			out = append(out, warning(at, RuleEntry, "cannot be read: %v", withoutPath(err)))
		case slices.ContainsFunc(known, func(p Problem) bool { return p.File == at }):
		// The author may develop the skill in a Git repository.
		case f.Refused != "" && f.Path != ".git":
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

// checker reads the frontmatter fields of one skill and collects their problems.
type checker struct {
	file        string
	frontmatter *frontmatter
	lenient     bool
	problems    []Problem
}

// violation reports a broken rule. It is a warning if the checker is lenient.
func (c *checker) violation(at field, rule Rule, format string, args ...any) {
	c.problems = append(c.problems, Problem{File: c.file, Line: at.line, Column: at.column, Rule: rule, Message: fmt.Sprintf(format, args...), Warning: c.lenient})
}

// fatal reports an error that makes the skill unusable, even if the checker is lenient.
func (c *checker) fatal(at field, rule Rule, format string, args ...any) {
	c.violation(at, rule, format, args...)
	c.problems[len(c.problems)-1].Warning = false
}

// skill returns a skill with the values of the fields. dir is the base name of the skill's
// directory.
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

// text returns a field and its trimmed value. The value is "" if the field is missing or not a
// scalar. The position of a missing field is line 1.
func (c *checker) text(key string) (field, string) {
	f, ok := c.frontmatter.lookup(key)
	if !ok {
		return field{line: 1}, ""
	}
	text, _ := f.text()
	return f, strings.TrimSpace(text)
}

// name returns the name of the skill. A lenient checker keeps a name that breaks rules. It uses the
// name of the directory if the name is missing.
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

	if strings.ContainsFunc(name, unicode.IsControl) { // prevents forged lines in lists of skills
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

// allowedTools returns the list of patterns. The standard separates them by spaces. Commas and YAML
// lists are accepted too, because other tools write them.
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

// patterns splits text at spaces and commas outside of parentheses, as in "Bash(git add *) Read".
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

// checkStyle reports YAML that the standard's parser rejects: flow style, anchors, aliases and
// tags.
func (c *checker) checkStyle() {
	for _, f := range c.frontmatter.fields {
		c.checkNodeStyle(f, f.node)
	}
}

func (c *checker) checkNodeStyle(f field, n *yaml.Node) {
	// The frontmatter begins on the second line of the file.
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
