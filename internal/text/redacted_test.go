package text

import (
	"strings"
	"testing"
)

// TestRedactedEnds: no part of a secret across the cut remains, whatever was redacted before it.
func TestRedactedEnds(t *testing.T) {
	t.Parallel()
	const secret = "sésame-street"
	redact := func(s string) string { return strings.ReplaceAll(s, secret, "[secret]") }
	for spare := range len(secret) * 2 {
		all := strings.Repeat("ab"+secret, 3)
		for what, got := range map[string]string{"head": RedactedHead(all+strings.Repeat("y", len(secret)), spare+len(secret), redact), "tail": RedactedTail(strings.Repeat("y", len(secret))+all, spare+len(secret), redact)} {
			if rest := strings.ReplaceAll(got, "[secret]", ""); strings.Contains(rest, "sés") || strings.Contains(rest, "reet") {
				t.Errorf("%s with %d bytes to spare: %q", what, spare, got)
			}
		}
	}

	if got := RedactedHead("plain text", 4, redact); got != "plain " {
		t.Errorf("%q", got)
	}
	if got := RedactedTail("plain text", 4, redact); got != "n text" {
		t.Errorf("%q", got)
	}
}
