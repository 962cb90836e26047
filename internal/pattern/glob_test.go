package pattern_test

import (
	"testing"

	"rouse/internal/pattern"
)

func TestGlob(t *testing.T) {
	const composed, parts = "\u00fc", "u\u0308"
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{composed + "*.pdf", parts + "bung.pdf", true}, {parts + "*.pdf", composed + "bung.pdf", true}, {"?.pdf", parts + ".pdf", true},
		{"[" + composed + "].pdf", parts + ".pdf", true}, {"u*.pdf", parts + ".pdf", false}, {"a/**", "a/" + parts, true}, {"[", "[", false}, {"\xff*", "\xffa", true},
	} {
		if got := pattern.Glob(c.glob, c.name); got != c.want {
			t.Errorf("%q matches %q: %t", c.glob, c.name, got)
		}
	}
}
