package sqltext

import (
	"regexp"
	"strings"
)

// messageName matches the name in an SQLite error message.
var messageName = regexp.MustCompile(`(?s)(?:no such (?:table|column|function|index|view|trigger|collation sequence): |ambiguous column name: |has no column named |near "|wrong number of arguments to function |unrecognized token: ")("[^"]+"|[^"\s(]+)`)

// Locate returns the offset in SQL of an error with this message, or -1 if it is unknown. SQLite's
// driver does not report the offset, so Locate returns the first occurrence of the name in the
// message.
func Locate(sql, message string) int {
	m := messageName.FindStringSubmatch(message)
	if m == nil {
		// The missing part is at the end.
		if strings.HasPrefix(message, "incomplete input") {
			return len(strings.TrimRight(sql, " \t\r\n;"))
		}
		return -1
	}

	name := strings.Trim(m[1], `"`)
	if strings.HasPrefix(message, "near ") {
		return onlyOccurrence(sql, name)
	}

	name = name[strings.LastIndexByte(name, '.')+1:]
	for i := 0; i < len(sql); {
		next, what := NextToken(sql, i)
		if what != TokenSpace && strings.EqualFold(strings.Trim(sql[i:next], "\"`[]"), name) {
			return i
		}
		i = next
	}

	return strings.Index(sql, name)
}

// onlyOccurrence returns the offset of a word, or -1 if there is no or more than one occurrence.
func onlyOccurrence(sql, name string) int {
	at := -1
	for i := 0; i < len(sql); {
		next, what := NextToken(sql, i)
		if what != TokenSpace && sql[i:next] == name {
			if at >= 0 {
				return -1
			}
			at = i
		}

		i = next
	}

	return at
}

// ExcerptFor returns the excerpt for a message about SQL, or "" if the place is unknown.
func ExcerptFor(sql, message string) string {
	if at := Locate(sql, message); at >= 0 {
		return Excerpt(sql, at)
	}
	return ""
}
