package layout_test

import (
	"path/filepath"
	"slices"
	"testing"

	"rouse/cmd/internal/layout"
)

// The parts are sorted and unique, and Of finds each by its name.
func TestParts(t *testing.T) {
	t.Parallel()
	all := layout.Parts()
	if !slices.IsSortedFunc(all, func(a, b layout.Part) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	}) {
		t.Error("the parts are not in order, or one stands twice")
	}
	for _, p := range all {
		if got, ok := layout.Of(p.Name + "/x"); !ok || got != p {
			t.Errorf("%s is %+v, %t", p.Name, got, ok)
		}
	}
}

func TestKept(t *testing.T) {
	t.Parallel()
	home := filepath.FromSlash("/h")
	for path, want := range map[string]bool{
		"/h": false, "/elsewhere": false, "/h/../x": false, "/h/notes": false, "/h/rouse.yaml": true, "/h/ledger.db": true, "/h/blobs/ab/abc": true,
		"/h/agents": true, "/h/agents/a": true, "/h/agents/a/db.sqlite": true, "/h/agents/a/work": false, "/h/agents/a/work/x": false, "/h/agents/a/home/.x": false, "/h/agents/a/workshop": true,
	} {
		if got := layout.Kept(home, filepath.FromSlash(path)); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}
