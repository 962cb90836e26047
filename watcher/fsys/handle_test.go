package fsys

import (
	"testing"
)

// TestRelInside checks that a path is compared with a folder name by name.
func TestRelInside(t *testing.T) {
	for _, c := range []struct {
		dir, path, want string
		in              bool
	}{
		{"/in", "/in/a", "a", true}, {"/in", "/in/a/b", "a/b", true}, {"/in", "/in/..a", "..a", true}, {"/", "/a", "a", true},
		{"/in", "/in", "", false}, {"/in", "/", "", false}, {"/in", "/inn/a", "", false}, {"/in", "/out/a", "", false}, {"/in", "a", "", false},
	} {
		if got, in := RelInside(c.dir, c.path); got != c.want || in != c.in {
			t.Errorf("%s in %s: %q, %t", c.path, c.dir, got, in)
		}
	}
}
