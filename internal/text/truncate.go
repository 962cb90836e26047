package text

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// ellipsis marks text that was cut.
const ellipsis = "…"

// Truncate cuts text to at most n characters, including the "…" that marks a cut. Invalid UTF-8
// becomes U+FFFD.
func Truncate(s string, n int) string {
	if n <= 0 {
		return ""
	}

	if len(Head(s, n)) == len(s) {
		return strings.ToValidUTF8(s, "\uFFFD")
	}

	return strings.ToValidUTF8(Head(s, n-1), "\uFFFD") + ellipsis
}

// Head returns the first n characters of a text. An invalid byte counts as a character.
func Head(s string, n int) string {
	for i := range s {
		if n <= 0 {
			return s[:i]
		}
		n--
	}

	return s
}

// Tail returns the last n characters of a text.
func Tail(s string, n int) string {
	at := len(s)
	for ; n > 0 && at > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}

	return s[at:]
}

// HeadBytes returns the beginning of a text, with at most n bytes and no partial character.
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

// Collapse replaces each run of white space, including line breaks, by one space, and trims the
// ends.
func Collapse(s string) string { return strings.Join(strings.Fields(s), " ") }

// Limits of LastOf for each output.
const (
	lastLines      = 10
	lastCharacters = 800
)

// LastOf returns an addition to an error message: the last lines of each output of a program, which
// usually contain the cause. It returns "" if the outputs are empty.
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
