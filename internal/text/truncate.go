package text

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// ellipsis ends a text that was cut for a reader.
const ellipsis = "…"

// Truncate cuts a text to at most n characters; "…" is the last one where something was cut. Bytes
// that are not UTF-8 become U+FFFD.
func Truncate(s string, n int) string {
	if n <= 0 {
		return ""
	}

	if len(Head(s, n)) == len(s) {
		return strings.ToValidUTF8(s, "\uFFFD")
	}

	return strings.ToValidUTF8(Head(s, n-1), "\uFFFD") + ellipsis
}

// Head is the first n characters of a text, or all of it. A byte that is not UTF-8 counts as a
// character.
func Head(s string, n int) string {
	for i := range s {
		if n <= 0 {
			return s[:i]
		}
		n--
	}

	return s
}

// Tail is the last n characters of a text, or all of it.
func Tail(s string, n int) string {
	at := len(s)
	for ; n > 0 && at > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}

	return s[at:]
}

// HeadBytes is the beginning of a text in at most n bytes, which ends with a whole character.
func HeadBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}

	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}

	return s[:n]
}

// Collapse replaces each run of white space, line breaks included, by one space, and trims the ends.
func Collapse(s string) string { return strings.Join(strings.Fields(s), " ") }

// The most of what LastOf shows of one output.
const (
	lastLines      = 10
	lastCharacters = 800
)

// LastOf ends a sentence about the lines that a program wrote with the last ones of each of its outputs, a
// line each: they say why it failed. It is "" when nothing was written.
func LastOf(outputs ...string) string {
	var last string
	for _, output := range outputs {
		lines := slices.DeleteFunc(strings.Split(output, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
		if len(lines) == 0 {
			continue
		}

		end := strings.Join(lines[max(len(lines)-lastLines, 0):], "\n")
		if tail := Tail(end, lastCharacters); tail != end {
			end = ellipsis + tail
		}
		last += "\n" + end
	}

	if last != "" {
		last = "; the last of them:" + last
	}
	return last
}
