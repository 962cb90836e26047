package file

import (
	"bytes"
	"regexp"
	"regexp/syntax"
	"strings"
)

// lineMatcher finds the lines of a text that a pattern matches. It looks first for a literal that every
// match must contain, which is fast, and tries the pattern only on the lines that have it.
type lineMatcher struct {
	literal   []byte // "": every line is tried
	fold      bool   // the case of the literal does not matter; it is in lower case then
	rare      int    // the index of its rarest byte
	matchLine func(line []byte) bool
}

// newSubstringMatcher finds a text, in any case.
func newSubstringMatcher(pattern string) (*lineMatcher, error) {
	return newRegexpMatcher(regexp.QuoteMeta(pattern), false)
}

// newRegexpMatcher finds a regular expression, one line at a time. Its error is about the pattern.
func newRegexpMatcher(pattern string, caseSensitive bool) (*lineMatcher, error) {
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
		return nil, err // which quotes the pattern as it was given, without (?i)
	}

	if !caseSensitive {
		pattern = "(?i)" + pattern
	}

	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}

	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}

	f := &lineMatcher{matchLine: re.Match}
	tree = tree.Simplify()
	literal, fold := requiredLiteral(tree)
	if !isASCII(literal) || fold && strings.ContainsAny(literal, "kKsS") {
		// Letters outside of ASCII, and k and s, have more forms than two: the Kelvin sign is a k,
		// the long s is an s. Comparing bytes would miss them.
		literal, fold = shorten(literal, fold)
	}

	if fold {
		literal = strings.ToLower(literal)
	}

	f.literal, f.fold = []byte(literal), fold
	for i := range f.literal {
		if commonness(f.literal[i]) < commonness(f.literal[f.rare]) {
			f.rare = i
		}
	}

	if whole := string(tree.Rune); tree.Op == syntax.OpLiteral && (whole == literal || fold && strings.ToLower(whole) == literal) {
		f.matchLine = nil // the literal is the whole pattern, and need not be tried again
	}

	return f, nil
}

// requiredLiteral is the longest text that every match contains, "" if none is known.
func requiredLiteral(re *syntax.Regexp) (literal string, fold bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune), re.Flags&syntax.FoldCase != 0
	case syntax.OpCapture, syntax.OpPlus:
		return requiredLiteral(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if l, f := requiredLiteral(sub); len(l) > len(literal) {
				literal, fold = l, f
			}
		}
	}
	return literal, fold
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0
}

// shorten returns the longest part of a literal whose letters have no more than two forms.
func shorten(literal string, fold bool) (string, bool) {
	if !fold {
		return literal, false
	}

	longest := ""
	for _, part := range strings.FieldsFunc(literal, func(r rune) bool { return r > 127 || strings.ContainsRune("kKsS", r) }) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest, true
}

// commonness orders bytes roughly by how often they occur in texts. Looking for the rarest byte of a
// literal passes over most of a text.
func commonness(b byte) int {
	if i := strings.IndexByte("zqxjkvbpygfwmucldrhsnioate ", b|0x20); i >= 0 {
		return 40 + 8*i
	}
	if b >= '0' && b <= '9' {
		return 60
	}
	return 30
}

// nextLiteral is the index of the literal from an offset on, -1 when it does not occur.
func (f *lineMatcher) nextLiteral(text []byte, from int) int {
	if !f.fold {
		if at := bytes.Index(text[from:], f.literal); at >= 0 {
			return from + at
		}
		return -1
	}

	low := f.literal[f.rare]
	up := low
	if low >= 'a' && low <= 'z' {
		up -= 'a' - 'A'
	}

	lows, ups := byteCursor{at: -1}, byteCursor{at: -1}
	for i := from + f.rare; i < len(text); {
		at := lows.first(text, low, i)
		if up != low {
			if other := ups.first(text, up, i); other >= 0 && (at < 0 || other < at) {
				at = other
			}
		}
		if at < 0 {
			return -1
		}

		begin := at - f.rare
		if begin+len(f.literal) > len(text) {
			return -1
		}
		if foldEqual(text[begin:begin+len(f.literal)], f.literal) {
			return begin
		}

		i = at + 1
	}

	return -1
}

// byteCursor remembers where a byte occurs next. The lower and the upper case of a letter are each looked
// for only once that way, even if one of them is far ahead.
type byteCursor struct {
	at   int
	none bool
}

func (c *byteCursor) first(text []byte, b byte, from int) int {
	if c.none {
		return -1
	}

	if c.at < from {
		at := bytes.IndexByte(text[from:], b)
		if at < 0 {
			c.none = true
			return -1
		}
		c.at = from + at
	}

	return c.at
}

func foldEqual(text, lower []byte) bool {
	for i, b := range text {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b != lower[i] {
			return false
		}
	}
	return true
}

// each calls give with every line that matches, and its number from 1.
func (f *lineMatcher) each(text []byte, give func(number int, line []byte)) {
	// Lines are counted only up to those that match.
	number, counted := 1, 0
	for from := 0; from < len(text); {
		at := from
		if len(f.literal) > 0 {
			if at = f.nextLiteral(text, from); at < 0 {
				return
			}
		}

		begin := bytes.LastIndexByte(text[:at], '\n') + 1
		end := len(text)
		if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
			end = at + n
		}

		line := bytes.TrimSuffix(text[begin:end], []byte("\r"))
		if f.matchLine == nil || f.matchLine(line) {
			number += bytes.Count(text[counted:begin], []byte("\n"))
			counted = begin
			give(number, line)
		}

		from = end + 1
	}
}
