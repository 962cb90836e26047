package config

import (
	"net/url"
	"regexp"
	"strings"
)

// secretQuery matches the names of a query under which addresses carry keys.
var secretQuery = regexp.MustCompile(`(?i)auth|key|secret|token|passw|credential|signature|^(sig|pwd|pass)$`)

// longToken is the shortest user of an address without a password that is taken for a token, in bytes.
const longToken = 16

// isAddress says whether a text may be an address.
func isAddress(text string) bool { return strings.Contains(text, "://") }

// urlSecrets are the secrets within an address: the password before its host, or a token in its place, and the values of its query
// whose names say that they are keys.
func urlSecrets(text string) (out []string) {
	if !isAddress(text) {
		return nil
	}

	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	if password, ok := u.User.Password(); ok {
		out = append(out, password)
	} else if name := u.User.Username(); len(name) >= longToken { // discord://TOKEN@ID, https://KEY@host
		out = append(out, name)
	}

	for name, values := range u.Query() {
		if secretQuery.MatchString(name) {
			out = append(out, values...)
		}
	}
	return out
}

// urlSecret registers the secrets of an address, so that they are masked wherever it is shown. Empty ones
// are none.
func (d *decoder) urlSecret(at Position, path, text string) {
	for _, value := range urlSecrets(text) {
		if value != "" && !strings.Contains(value, "{{") {
			d.secret(at, path, value)
		}
	}
}
