package fspath

import (
	"path/filepath"
	"testing"
)

// Whole names are compared: /inn is not inside /in, and ..a is a normal name.
func TestRel(t *testing.T) {
	for _, c := range []struct {
		folder, path, want string
		ok                 bool
	}{
		{"/in", "/in/a", "a", true},
		{"/in", "/in/a/b", "a/b", true},
		{"/in/", "/in/a/", "a", true},
		{"/in", "/in", ".", true},
		{"/in", "/in/..a", "..a", true},
		{"/in", "/in/...", "...", true},
		{"/in", "/in/x/../a", "a", true},
		{"/", "/a", "a", true},
		{"/", "/", ".", true},
		{"in", "in/a", "a", true},
		{".", "a", "a", true},
		{"/in", "/", "", false},
		{"/in", "/inn/a", "", false},
		{"/in", "/out/a", "", false},
		{"/in", "/in/../out", "", false},
		{"/in/a", "/in", "", false},
		{"/in", "a", "", false},
		{"in", "/a", "", false},
		{"", "/a", "", false},
		{"/in", "", "", false},
		{"..", "a", "", false},
	} {
		folder, path := filepath.FromSlash(c.folder), filepath.FromSlash(c.path)
		got, ok := Rel(folder, path)
		if got != filepath.FromSlash(c.want) || ok != c.ok || Within(path, folder) != c.ok {
			t.Errorf("%s in %s: %q, %t", c.path, c.folder, got, ok)
		}

		short := path
		if ok {
			short = got
		}
		if Shorten(folder, path) != short {
			t.Errorf("%s shortened from %s: %q", c.path, c.folder, Shorten(folder, path))
		}
	}
}
