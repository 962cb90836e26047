package web

import "testing"

// OSL-09: a rule of a manifest covers what its author wrote, and no other host by a path that looks like it.
func TestMatchesPattern(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, url string
		want         bool
	}{
		{"*", "https://a.example/x", true},
		{"https://api.example.com/*", "https://api.example.com/v1?q=1", true},
		{"https://api.example.com/*", "https://api.example.com/", true},
		{"https://api.example.com/*", "http://api.example.com/v1", false},
		{"https://api.example.com/*", "https://api.example.com.evil.example/v1", false},
		{"https://api.example.com/*", "https://evil.example/https://api.example.com/v1", false},
		{"https://*.example.com/*", "https://a.b.example.com/x", true},
		{"https://*.example.com/*", "https://evil.example/x.example.com/", false},
		{"https://*.example.com/*", "https://example.com/", false},
		{"*://Example.com/*", "http://example.com/x", true},
		{"https://*", "https://a.example/x/y", true},
		{"https://a.example", "https://a.example/", true},
		{"https://a.example", "https://a.example/x", false},
		{"https://a.example/*/items", "https://a.example/1/2/items", true},
		{"https://a.example/*/items", "https://a.example/items", false},
		{"https://a.example/a*a", "https://a.example/a", false},
		{"a.example/*", "https://a.example/x", false},
		{"", "https://a.example/x", false},
	} {
		if got := MatchesPattern(c.pattern, c.url); got != c.want {
			t.Errorf("%s covers %s: %v", c.pattern, c.url, got)
		}
	}
}
