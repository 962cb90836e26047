package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"rouse/internal/nofollow"
)

// TestLayoutWithinBoundary checks that a command's paths are not reached by links that another user
// could have created.
func TestLayoutWithinBoundary(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shared, out, own := filepath.Join(dir, "work", "shared"), filepath.Join(dir, "out"), filepath.Join(dir, "own")
	err = errors.Join(os.MkdirAll(filepath.Join(dir, "work"), 0o700), os.Mkdir(out, 0o700), os.Symlink(out, shared), os.Symlink(out, own))
	if err != nil {
		t.Fatal(err)
	}

	b := nofollow.NewBoundary(filepath.Join(dir, "work"))
	for name, c := range map[string]Command{
		"dir": {Dir: shared, Boundary: b}, "read": {Dir: out, Read: []string{shared}, Boundary: b}, "write": {Dir: out, Write: []string{shared}, Boundary: b},
	} {
		var link *nofollow.LinkError
		if l, err := newLayout(c); !errors.As(err, &link) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	if l, err := newLayout(Command{Dir: own, Read: []string{own}, Boundary: b}); err != nil || l.dir != out || len(l.read) != 1 || l.read[0] != out {
		t.Errorf("the owner's link: %+v, %v", l, err)
	}
}
