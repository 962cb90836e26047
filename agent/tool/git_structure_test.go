package tool_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
)

// TestGitStructure checks that files of a repository cannot be written and that a folder cannot
// become a repository, even through links. Files of a repository can be read unless they are
// secrets.
func TestGitStructure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"own/.git/HEAD", "pile/HEAD", "pile/objects/x", "pile/refs/x", "part/HEAD", "tools/objects/x", "tools/refs/x", "tools/x"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte("ref: refs/heads/main\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"door": "own/.git", "way": "part", "back": "pile/objects"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skip("needs links")
		}
	}

	roots, err := tool.NewRoots(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	may := func(path string, write bool) bool {
		p, err := roots.Resolve(path, write)
		if err == nil {
			defer p.Close()
		}
		var refused *tool.Refusal
		if err != nil && (!errors.As(err, &refused) || !strings.Contains(err.Error(), "git")) {
			t.Errorf("%s: %v", path, err)
		}
		return err == nil
	}

	for _, path := range []string{"own/.git/HEAD", "own/.git/new", "own/.git", "new/.git", "a/b/.GIT/x", "door/commondir", "door/info/attributes", "pile/config", "pile/deep/x", "pile/objects/x", "back/x",
		"part/objects/x", "part/refs", "part/commondir", "way/objects/x", "HEAD", "tools/HEAD", "new/HEAD", "new/commondir", "part/HEAD"} {
		if may(path, true) {
			t.Errorf("%s may be written", path)
		}
	}
	for _, path := range []string{"own/x", "part/config", "part/sub/objects/x", "tools/objects/y", "tools/config", "refs/x", "objects/x", ".gitignore", ".gitattributes", "head/x", "door.txt"} {
		if !may(path, true) {
			t.Errorf("%s may not be written", path)
		}
	}
	for _, path := range []string{"own/.git/HEAD", "pile/HEAD", "door/HEAD"} {
		if !may(path, false) {
			t.Errorf("%s may not be read", path)
		}
	}
}
