package text

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// escapeSequences matches terminal escape sequences: colors, titles, cursor moves and character
// sets. Incomplete sequences and a single ESC do not match, so that no text after them is lost.
var escapeSequences = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[PX^_][^\x1b]*\x1b\\\\|[#%()*+./-][0-9A-Za-z]|[=>])")
})

// OneLine makes text safe for one line of a terminal: it cannot move the cursor or start another
// line. Repeated spaces are kept, so that a shown path can be used.
func OneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' {
			return ' '
		}
		return r
	}, Lines(s)))
}

// Lines is like OneLine, but keeps line breaks.
func Lines(s string) string {
	s = escapeSequences().ReplaceAllString(strings.ToValidUTF8(s, "\uFFFD"), "")

	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r != ' ' && unicode.IsSpace(r) && !unicode.Is(unicode.Zs, r): // tabs and other line breaks
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// Clean makes program output safe to process: valid UTF-8, lines ending in "\n", no terminal escape
// sequences. It escapes hidden characters, and keeps the letters and spaces of all languages.
func Clean(s string) string {
	s = escapeSequences().ReplaceAllString(strings.ToValidUTF8(s, "\uFFFD"), "")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\r", "\n") // progress output that overwrites its line

	return escape(s, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
	})
}

// Visible escapes every character that is invisible or misleading, for a person who must approve
// the text: cursor movement, text direction, zero width, and unusual spaces. Line breaks are kept.
// Visible is idempotent.
func Visible(s string) string {
	return escape(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}

// escape replaces each hidden character, and each byte that is not UTF-8, by an escape such as
// \x1b, \u202e or \U000e0041.
func escape(s string, hidden func(rune) bool) string {
	// Avoid a copy in the usual case.
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hidden) {
		return s
	}

	var out strings.Builder
	for i, r := range s {
		// A size of 1 distinguishes an invalid byte from a U+FFFD in the text.
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

// IsPlain reports whether s consists of printable ASCII characters and has at most that many bytes.
func IsPlain(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
