package memory

import (
	"slices"
	"strings"
)

// Category says what sort of failure something was (AYA-10).
type Category string

// The categories, in the order in which they are looked for.
const (
	NotFound     Category = "not_found"
	Permission   Category = "permission"
	Timeout      Category = "timeout"
	InvalidInput Category = "invalid_input"
	Runtime      Category = "runtime"
)

// CategoryOf goes by the kind of a failure if that says enough, else by the words of its message.
func CategoryOf(kind, message string) Category {
	switch kind {
	case "not_found", "tool_not_found":
		return NotFound
	case "rejected", "user_denied":
		return Permission
	case "timeout":
		return Timeout
	case "invalid_args":
		return InvalidInput
	}

	// The kinds that are left, above all the failure of a command, say nothing of the cause.
	message = strings.ToLower(message)
	for _, c := range []struct {
		category Category
		words    []string
	}{
		{NotFound, []string{"not found", "no such"}},
		{Permission, []string{"permission", "denied"}},
		{Timeout, []string{"timeout", "timed out", "did not end within"}},
		{InvalidInput, []string{"invalid", "validation"}},
	} {
		if slices.ContainsFunc(c.words, func(w string) bool { return strings.Contains(message, w) }) {
			return c.category
		}
	}

	return Runtime
}
