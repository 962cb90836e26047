// Package urlpath prepares the path of a URL for comparison with a rule, such as those of networkRules and of granted commands.
//
// A server may resolve dot segments and decode a path before it looks at it, so that a rule about /public/* would let a request
// for /public/../private through. Dot segments are therefore resolved, and spellings that servers read in different ways match no
// rule that is about a path.
package urlpath

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// Clean resolves the dot segments of an escaped path, as RFC 3986 (5.2.4) does. It leaves all else as it is.
func Clean(escaped string) string {
	parts := strings.Split(escaped, "/")
	if !slices.ContainsFunc(parts, dots) {
		return escaped
	}

	var out []string
	for _, part := range parts[1:] { // what is before the first slash is empty
		switch {
		case part == ".." && len(out) > 0:
			out = out[:len(out)-1]
		case !dots(part):
			out = append(out, part)
		}
	}
	if dots(parts[len(parts)-1]) {
		out = append(out, "")
	}
	return "/" + strings.Join(out, "/")
}

func dots(segment string) bool { return segment == "." || segment == ".." }

// Ambiguous returns the part of an escaped path that servers read in different ways, or "" if there is none: dot segments, also with
// parameters, encoded dots, slashes, backslashes and percent signs, backslashes, and bytes that are not UTF-8.
func Ambiguous(escaped string) string {
	lower := strings.ToLower(escaped)
	for _, spelling := range []string{"%2e", "%2f", "%5c", "%25", "%00", `\`} {
		if at := strings.Index(lower, spelling); at >= 0 {
			return escaped[at : at+len(spelling)]
		}
	}
	for part := range strings.SplitSeq(escaped, "/") {
		if name, _, _ := strings.Cut(part, ";"); dots(name) {
			return part
		}
		if plain, err := url.PathUnescape(part); err != nil || !utf8.ValidString(plain) {
			return part
		}
	}
	return ""
}
