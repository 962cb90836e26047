package text

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// escapeSequences matches what a terminal obeys: colours, titles, cursor moves, character sets. A
// sequence without its end is not matched, and neither is ESC alone, so that no text is lost after it.
var escapeSequences = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[PX^_][^\x1b]*\x1b\\\\|[#%()*+./-][0-9A-Za-z]|[=>])")
})

// OneLine makes a text from anywhere safe for one line of a terminal: a file name or the words of a
// model can neither move the cursor nor start another line. Repeated blanks stay, because people look
// up a path by what is shown of it.
func OneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' {
			return ' '
		}
		return r
	}, Lines(s)))
}

// Lines is OneLine for a text of several lines, and keeps its line breaks.
func Lines(s string) string {
	s = escapeSequences().ReplaceAllString(strings.ToValidUTF8(s, "\uFFFD"), "")

	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r != ' ' && unicode.IsSpace(r) && !unicode.Is(unicode.Zs, r): // tabs, and other line breaks
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// Clean turns the output of a program into text to work on: valid UTF-8, in lines that end in "\n",
// without what a terminal would obey. What else could hide a part of it is escaped; letters and blanks
// of every language stay.
func Clean(s string) string {
	s = escapeSequences().ReplaceAllString(strings.ToValidUTF8(s, "\uFFFD"), "")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\r", "\n") // a progress line that overwrites itself

	return escape(s, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
	})
}

// Visible escapes every character that does not show as itself, for a person who decides about the
// text: what moves the cursor, reverses the text, has no width, or only looks like a space. Line breaks
// stay. Applied again it changes nothing.
func Visible(s string) string {
	return escape(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}

// escape writes \x1b, \u202e or \U000e0041 in place of each hidden character, and of each byte that
// is not UTF-8.
func escape(s string, hidden func(rune) bool) string {
	// Nearly always there is nothing to escape, and nothing to copy.
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hidden) {
		return s
	}

	var out strings.Builder
	for i, r := range s {
		// Size 1 tells a byte that is not UTF-8 from a U+FFFD that was in the text.
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

// IsPlain reports whether s has at most that many bytes, all of them characters of ASCII that can be printed.
func IsPlain(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
