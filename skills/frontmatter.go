package skills

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// field is a frontmatter field with its position.
type field struct {
	key    string // lower case if the parser is lenient
	node   *yaml.Node
	line   int // line of the file, from 1
	column int
}

// text returns the value as a string. It returns false if the value is a list or a mapping.
func (v field) text() (string, bool) {
	if v.node.Kind != yaml.ScalarNode {
		return "", false
	}
	if v.node.Tag == "!!null" {
		return "", true
	}
	return v.node.Value, true
}

// frontmatter is the YAML at the beginning of a SKILL.md.
type frontmatter struct {
	fields []field // in file order
}

func (f *frontmatter) lookup(name string) (field, bool) {
	for _, v := range f.fields {
		if v.key == name {
			return v, true
		}
	}
	return field{}, false
}

var bom = []byte("\xef\xbb\xbf")

var (
	frontmatterBegin = regexp.MustCompile(`\A\x{FEFF}?---[ \t]*\r?(\n|\z)`)
	frontmatterEnd   = regexp.MustCompile(`(?m)^---[ \t]*\r?(\n|\z)`)
)

// splitFrontmatter finds the YAML between two lines of "---". It accepts CRLF line endings and
// skips a byte order mark. It returns the offsets of the YAML and of the body. If the frontmatter
// is incomplete, it returns the violated rule.
func splitFrontmatter(text []byte) (from, to, body int, rule Rule) {
	begin := frontmatterBegin.FindIndex(text)
	if begin == nil {
		return 0, 0, 0, RuleFrontmatterMissing
	}
	from = begin[1]
	end := frontmatterEnd.FindIndex(text[from:])
	if end == nil {
		return 0, 0, 0, RuleFrontmatterOpen
	}
	return from, from + end[0], from + end[1], ""
}

// maxDepth is the maximum nesting depth of frontmatter.
const maxDepth = 20

// parseFrontmatter parses the frontmatter of a SKILL.md. A lenient parser reads values that are not
// valid YAML as plain text, for example a description with a colon.
func parseFrontmatter(file string, text []byte, lenient bool) (*frontmatter, []Problem) {
	fail := func(rule Rule, line int, format string, args ...any) []Problem {
		p := problem(file, rule, format, args...)
		p[0].Line = line
		return p
	}
	from, to, _, rule := splitFrontmatter(text)
	switch rule {
	case RuleFrontmatterMissing:
		return nil, fail(rule, 1, "does not start with --- on a line of its own; name and description of a skill stand between two such lines")
	case RuleFrontmatterOpen:
		return nil, fail(rule, 1, "the --- that ends name and description is missing")
	}

	if !utf8.Valid(text[from:to]) {
		return nil, fail(RuleEncoding, 1, "is not UTF-8 text; save it as UTF-8")
	}

	source := strings.ReplaceAll(string(text[from:to]), "\r\n", "\n")
	out := &frontmatter{}
	root, line, err := parseYAML(source)
	// Convert to a line of the file. The parser reports some errors at the very end.
	line = min(line+1, strings.Count(source, "\n")+2)
	var problems []Problem
	if err != nil && lenient {
		if mended, changed := quoteValues(source); changed {
			if again, _, err2 := parseYAML(mended); err2 == nil {
				problems = fail(RuleFrontmatterYAML, line, "is not YAML (%v), and was read with its values as plain text; put them in quotes", err)
				problems[0].Warning = true
				root, err = again, nil
			}
		}
	}
	if err != nil {
		return nil, fail(RuleFrontmatterYAML, line, "is not YAML: %v; a value that holds a colon or begins with a special character belongs in quotes", err)
	}
	if root == nil || root.Kind != yaml.MappingNode {
		return nil, append(problems, fail(RuleFrontmatterMapping, 2, "must be a list of keys with values, like name: pdf-tools")...)
	}

	for i := 0; i+1 < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		// Resolve aliases, so that callers see the kind of the real value.
		if v.Kind == yaml.AliasNode && v.Alias != nil {
			v = v.Alias
		}

		key := k.Value
		if lenient {
			key = strings.ToLower(key)
		}

		if _, ok := out.lookup(key); ok {
			p := fail(RuleFieldTwice, k.Line+1, "%s is given twice", key)
			p[0].Warning = lenient // the first value is used
			problems = append(problems, p...)
			continue
		}

		out.fields = append(out.fields, field{key: key, node: v, line: k.Line + 1, column: k.Column})
	}

	return out, problems
}

// parseYAML parses one YAML document. If it fails, line is the line of the error in source, from 1.
// The error text does not contain the line.
func parseYAML(source string) (root *yaml.Node, line int, err error) {
	defer func() { // hostile input must not crash the daemon
		if p := recover(); p != nil {
			root, line, err = nil, 1, fmt.Errorf("it cannot be parsed (%v)", p)
		}
	}()

	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(source), &doc); err != nil {
		var wrong *yaml.LoadError
		if errors.As(err, &wrong) {
			return nil, wrong.Mark.Line, errors.New(wrong.Message)
		}
		return nil, 1, err
	}

	if len(doc.Content) == 0 {
		return nil, 1, nil
	}
	if tooDeep(doc.Content[0], maxDepth) {
		return nil, 1, errors.New("it is nested too deeply")
	}

	return doc.Content[0], 1, nil
}

func tooDeep(n *yaml.Node, left int) bool {
	return left == 0 || slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return tooDeep(c, left-1) })
}

// plainValue matches an unindented key with an unquoted scalar value on the same line.
var plainValue = regexp.MustCompile(`^([A-Za-z][\w-]*):[ \t]+([^\s"'|>\[{#].*)$`)

// quoteValues quotes the values of unindented keys and replaces tabs in the indentation with
// spaces. It reports whether source changed.
func quoteValues(source string) (string, bool) {
	lines := strings.Split(source, "\n")
	changed := false
	for i, l := range lines {
		text := strings.TrimLeft(l, " \t")
		if indent := l[:len(l)-len(text)]; strings.Contains(indent, "\t") {
			l = strings.ReplaceAll(indent, "\t", "  ") + text
		}

		if m := plainValue.FindStringSubmatch(l); m != nil && (strings.Contains(m[2], ":") || strings.ContainsAny(m[2][:1], "&*!%@`?-")) {
			l = m[1] + ": '" + strings.ReplaceAll(strings.TrimRight(m[2], " \t"), "'", "''") + "'"
		}

		changed = changed || l != lines[i]
		lines[i] = l
	}

	return strings.Join(lines, "\n"), changed
}
