package text

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escapeSequences are what a terminal obeys: colours, titles, the place of the cursor, sets of letters.
// One without its end is none, and neither is the mark alone, so that no text is lost behind it.
var escapeSequences = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[PX^_][^\x1b]*\x1b\\\\|[#%()*+./-][0-9A-Za-z]|[=>])")

// OneLine is a text from anywhere as it may stand in a line of a terminal: a name of a file or the
// words of a model can neither move the cursor nor begin another line. Several blanks stay
// several, for a path is to be found again by what is shown of it.
func OneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' {
			return ' '
		}
		return r
	}, Lines(s)))
}

// Lines is OneLine for a text of several lines, which it leaves as lines.
func Lines(s string) string {
	s = escapeSequences.ReplaceAllString(strings.ToValidUTF8(s, "\uFFFD"), "")

	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r != ' ' && unicode.IsSpace(r) && !unicode.Is(unicode.Zs, r): // tabs, and breaks of lines by other names
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// Clean makes a text of what a program wrote, for whoever works on it: valid, in lines that end in
// "\n", without what a terminal would obey. What else could hide a part of it is written out;
// letters and blanks of every language stay.
func Clean(s string) string {
	s = escapeSequences.ReplaceAllString(strings.ToValidUTF8(s, "\uFFFD"), "")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\r", "\n") // a line that was written over

	return escape(s, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
	})
}

// Visible writes out all that is not seen as itself, for whoever decides on what is there: what
// moves the cursor, turns the text around, has no width, or looks like a space and is none. Lines
// stay lines. Done again it changes nothing.
func Visible(s string) string {
	return escape(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}

// escape has \x1b, \u202e or \U000e0041 in the place of what is hidden, and of each byte that is
// no UTF-8.
func escape(s string, hidden func(rune) bool) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hidden) {
		return s
	}

	var out strings.Builder
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case !hidden(r):
			out.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r > 0xFFFF:
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}

	return out.String()
}
