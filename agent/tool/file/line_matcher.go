package file

import (
	"bytes"
	"regexp"
	"strings"
)

// lineMatcher finds the lines of a text that a regular expression matches.
type lineMatcher struct {
	line    *regexp.Regexp
	literal []byte // in lower case, in every match; a text without it is not searched line by line
}

// newRegexpMatcher returns a matcher for a regular expression.
func newRegexpMatcher(pattern string, caseSensitive bool) (*lineMatcher, error) {
	re, err := regexp.Compile(pattern)
	if err != nil || caseSensitive {
		return &lineMatcher{line: re}, err
	}

	// A case-insensitive expression is slow. bytes.ToLower does not unite all forms of s and of
	// letters beyond ASCII.
	literal, _ := re.LiteralPrefix()
	m := &lineMatcher{}
	for part := range strings.FieldsFuncSeq(strings.ToLower(literal), func(r rune) bool { return r > 127 || r == 's' }) {
		if len(part) > len(m.literal) {
			m.literal = []byte(part)
		}
	}
	m.line, err = regexp.Compile("(?i)" + pattern)
	return m, err
}

// each calls give with every matching line and its number from 1.
func (m *lineMatcher) each(text []byte, give func(number int, line []byte)) {
	if len(m.literal) > 0 && !bytes.Contains(bytes.ToLower(text), m.literal) {
		return
	}

	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if m.line.Match(line) {
			give(number, line)
		}
	}
}
