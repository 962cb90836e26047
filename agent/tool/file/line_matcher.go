package file

import (
	"bytes"
	"regexp"
	"strings"
)

// lineMatcher finds the lines of a text that a regular expression matches.
type lineMatcher struct {
	line    *regexp.Regexp
	literal []byte // in lower case, of which every match has a form; a text without it is not searched line by line
}

// newSubstringMatcher finds a text, in any case.
func newSubstringMatcher(pattern string) (*lineMatcher, error) {
	return newRegexpMatcher(regexp.QuoteMeta(pattern), false)
}

// newRegexpMatcher finds a regular expression, one line at a time. Its error is about the pattern.
func newRegexpMatcher(pattern string, caseSensitive bool) (*lineMatcher, error) {
	re, err := regexp.Compile(pattern)
	if err != nil || caseSensitive {
		return &lineMatcher{line: re}, err
	}

	// An expression without regard to case is slow. Letters beyond ASCII, and s, have forms that bytes.ToLower does not unite.
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

// each calls give with every line that matches, and its number from 1.
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
