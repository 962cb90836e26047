package sqltext

import (
	"strings"

	"rouse/internal/text"
)

// Placeholders returns n parameters for a list in SQL: "?, ?, ?".
func Placeholders(n int) string { return strings.TrimPrefix(strings.Repeat(", ?", n), ", ") }

// ContainsFold reports whether names has a name, whatever its case.
func ContainsFold(names []string, name string) bool {
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// DidYouMean returns the end of a message about an unknown name: the nearest name, or all names if
// they are few.
func DidYouMean(name string, among []string) string {
	if best := text.Nearest(name, among); best != "" {
		return "; did you mean " + best + "?"
	}
	if len(among) > 0 && len(among) <= 20 {
		return "; there are " + strings.Join(among, ", ")
	}
	return ""
}
