package shell

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"rouse/internal/nofollow"
)

// TestClosedFolders checks folders that may be listed but not searched. They hide no repository and
// do not stop a search, and before a command they are ignored.
func TestClosedFolders(t *testing.T) {
	top := t.TempDir()
	asNobody(t, top)
	for _, folder := range []string{"a/.git", "b/c/.git"} {
		if err := os.MkdirAll(filepath.Join(top, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(top, "a", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"a", "b"} {
		if err := os.Chmod(filepath.Join(top, folder), 0o400); err != nil {
			t.Fatal(err)
		}
	}

	before, err := newGitGuard(nofollow.NewBoundary(), []string{top})
	if err != nil {
		t.Fatal(err)
	}
	if len(before.owners) != 0 {
		t.Errorf("what cannot be seen is taken for the owner's: %v", before.owners)
	}

	disarmed, err := before.disarm()
	if err != nil || len(disarmed) != 2 {
		t.Fatalf("disarmed %v (%v)", disarmed, err)
	}
	for _, d := range disarmed {
		if _, err := os.Lstat(d.Path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", d.Path, err)
		}
	}
}

// TestRenameEnds checks that rename ends if names cannot be inspected.
func TestRenameEnds(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}

	w := gitWalk{root: root}
	if _, err := w.rename("file/.git", "git"); err == nil {
		t.Error("what lies in a file was renamed")
	}
}

// asNobody runs the test as an unprivileged user with its own folder.
func asNobody(t *testing.T, folder string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}

	const nobody = 65534
	if err := os.Chown(folder, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setreuid(-1, nobody); err != nil {
		t.Skipf("this test cannot become somebody who may not read everything: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Setreuid(-1, 0); err != nil {
			t.Error(err)
		}
	})
}
