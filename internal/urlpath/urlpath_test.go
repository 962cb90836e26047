package urlpath_test

import (
	"testing"

	"rouse/internal/urlpath"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"": "", "/": "/", "/a/b": "/a/b", "/a//b/": "/a//b/", "/a/../b": "/b", "/a/..": "/", "/a/b/..": "/a/", "/a/.": "/a/", "/./a": "/a", "/../../a": "/a", "/..": "/", "/a//../b": "/a/b",
		"/a/%2e%2e/b": "/a/%2e%2e/b", "/a..b/.c": "/a..b/.c", "/[x]/../[y]": "/[y]",
	} {
		if got := urlpath.Clean(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestAmbiguous(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/": "", "/a/b.html": "", "/%C3%BC/a%20b": "", "/a..b/..c": "", "/a;v=1/b": "", "/__OSL_SECRET[x]__": "",
		"/a/%2e%2E/b": "%2e", "/a%2Fb": "%2F", `/a\b`: `\`, "/a%5cb": "%5c", "/%252e": "%25", "/a/..;x/b": "..;x", "/a/.;/b": ".;", "/a/../b": "..", "/%c0%ae%c0%ae/": "%c0%ae%c0%ae", "/a%00": "%00", "/a%zz": "a%zz",
	} {
		if got := urlpath.Ambiguous(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
