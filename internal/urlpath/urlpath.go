// Package urlpath prepares the path of a URL for comparison with a rule, for example of
// networkRules or granted commands.
//
// A server may resolve dot segments and decode a path, so that a rule for /public/* would allow
// /public/../private. Dot segments are therefore resolved. Paths that servers interpret differently
// do not match any rule with a path.
package urlpath

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// Clean resolves the dot segments of an escaped path as in RFC 3986, section 5.2.4. The rest is
// unchanged.
func Clean(escaped string) string {
	parts := strings.Split(escaped, "/")
	if !slices.ContainsFunc(parts, dots) {
		return escaped
	}

	var out []string
	for _, part := range parts[1:] { // the part before the first slash is empty
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

// Ambiguous returns the first part of an escaped path that servers interpret differently, or "" if
// there is none. Such parts are dot segments, also with parameters, encoded dots, slashes,
// backslashes and percent signs, literal backslashes, and invalid UTF-8.
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
