package skills

import (
	"regexp"
	"strings"
)

// secretShapes are secrets that are known by how they look (OSL-05).
var secretShapes = []struct {
	what  string
	shape *regexp.Regexp
}{
	{"a key of a model's provider (sk-…)", regexp.MustCompile(`sk-[a-zA-Z0-9]{20,}`)},
	{"an access key of AWS (AKIA…)", regexp.MustCompile(`AKIA[0-9A-Z]{16}`)},
	{"a token of GitHub (ghp_…)", regexp.MustCompile(`ghp_[a-zA-Z0-9]{36}`)},
	{"a token of Slack (xox…)", regexp.MustCompile(`xox[bpsa]-[a-zA-Z0-9-]+`)},
}

var (
	// secretWord and quotedValue together are a line that sets something that is called like a secret.
	secretWord  = regexp.MustCompile(`(?i)secret|api.?key|token|password`)
	quotedValue = regexp.MustCompile(`[=:]\s*["'][^"']+["']`)
	// placeholder stands for a secret, and is replaced when it is used (OSL-22).
	placeholder = regexp.MustCompile(`__OSL_SECRET\[.+?\]__`)
)

// scanSecrets reports what looks like a secret in a file that is published: one that is known by its
// shape is an error, a quoted value under such a name is a warning. It never repeats what it found.
func scanSecrets(file string, text []byte) []Problem {
	r := &report{file: file}
	for i, line := range strings.Split(string(text), "\n") {
		at := value{line: i + 1}
		for _, s := range secretShapes {
			if s.shape.MatchString(line) {
				r.add(at, "", RuleSecret, false, "holds what looks like %s; remove it, have it revoked, and let the program ask for a binding", s.what)
			}
		}
		if secretWord.MatchString(line) && strings.Contains(line, "=") && quotedValue.MatchString(line) && !placeholder.MatchString(line) {
			r.add(at, "", RuleSecretLike, true, "seems to set a secret; if it is one, declare a binding and write __OSL_SECRET[its name]__")
		}
	}

	return r.problems
}

// hasPlaceholder says whether a text asks for a secret, and in which line first.
func hasPlaceholder(text []byte) (line int, ok bool) {
	at := placeholder.FindIndex(text)
	if at == nil {
		return 0, false
	}
	return strings.Count(string(text[:at[0]]), "\n") + 1, true
}
