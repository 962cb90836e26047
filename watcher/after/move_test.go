package after

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/internal/nofollow"
	"rouse/watcher/fsys"
)

// harness holds a folder with files and a Mover.
type harness struct {
	t    *testing.T
	base string
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &harness{t, base}
}

func (d *harness) path(name string) string { return filepath.Join(d.base, name) }

func (d *harness) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *harness) write(name, text string) string {
	d.t.Helper()
	d.must(os.WriteFile(d.path(name), []byte(text), 0o644))
	return d.path(name)
}

func (d *harness) handle(path string) fsys.Handle {
	d.t.Helper()
	file, err := fsys.OpenHandle(nofollow.UntrustedDirs{}, path)
	d.must(err)
	d.t.Cleanup(func() { file.Root.Close() })
	return file
}

func (d *harness) read(name, want string) {
	d.t.Helper()
	if got, err := os.ReadFile(d.path(name)); err != nil || string(got) != want {
		d.t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
	}
}

func (d *harness) missing(name string) {
	d.t.Helper()
	if _, err := os.Lstat(d.path(name)); err == nil {
		d.t.Errorf("%s is there", name)
	}
}

// TestCopyAcross checks that an interrupted copy is restarted. If the original is written to during
// the copy, the copy is removed and the original stays.
func TestCopyAcross(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	far := otherFileSystem(t, d.base)
	path := d.write("a.csv", "1")
	d.must(os.Chmod(path, 0o640))
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	d.must(os.Chtimes(path, long, long))
	info, err := os.Lstat(path)
	d.must(err)
	st, before := fsys.StampOf(info), fsys.StampOf(info)
	before.Size++
	dest := d.handle(filepath.Join(far, "a.csv"))
	if err := copyAcross(t.Context(), d.handle(path), before, dest); !errors.Is(err, fsys.ErrChanged) {
		t.Errorf("%v", err)
	}
	d.read("a.csv", "1")
	if left, err := os.ReadDir(far); err != nil || len(left) != 0 {
		t.Errorf("%v is left (%v)", left, err)
	}

	part := filepath.Join(far, fmt.Sprintf(".moving-%x-%x", st.Device, st.Inode))
	d.must(os.WriteFile(part, []byte("a part of it"), 0o600))
	d.must(copyAcross(t.Context(), d.handle(path), st, dest))
	d.missing("a.csv")
	if got, err := os.ReadFile(dest.Path()); err != nil || string(got) != "1" {
		t.Errorf("%q (%v)", got, err)
	}
	if info, err = os.Lstat(dest.Path()); err != nil || info.Mode().Perm() != 0o640 || !info.ModTime().Equal(long) {
		t.Errorf("%v (%v)", info, err)
	}
	if left, err := os.ReadDir(far); err != nil || len(left) != 1 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

// TestDeleteSparesAnotherFile checks that deleteFile does not delete a file that has replaced the
// one to delete.
func TestDeleteSparesAnotherFile(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	file := d.handle(d.write("a.csv", "1"))
	info, err := file.Lstat()
	d.must(err)
	before := fsys.StampOf(info)
	d.write("b", "other")
	d.must(os.Rename(d.path("b"), d.path("a.csv")))
	if err := deleteFile(file, before, file.Sibling(".deleting-1")); !errors.Is(err, fsys.ErrChanged) {
		t.Errorf("%v", err)
	}

	d.read("a.csv", "other")
	d.missing(".deleting-1")
}

// TestMoveRestoresAnotherFile checks that a rename is undone if it moved a file that has replaced
// the original.
func TestMoveRestoresAnotherFile(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	path := d.write("a.csv", "1")
	info, err := os.Lstat(path)
	d.must(err)
	before := fsys.StampOf(info)
	d.write("b", "other")
	d.must(os.Rename(d.path("b"), path))
	done := t.TempDir()
	dir := d.handle(filepath.Join(done, "x")).Root
	m := &Mover{Hashes: fsys.NewHashes()}
	if _, err := m.move(t.Context(), d.handle(path), before, dir, "a.csv"); !errors.Is(err, fsys.ErrChanged) {
		t.Errorf("%v", err)
	}

	d.read("a.csv", "other")
	if left, err := os.ReadDir(done); err != nil || len(left) != 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

func otherFileSystem(t *testing.T, here string) string {
	t.Helper()
	far := filepath.Join("/dev/shm", "rouse-after-"+filepath.Base(filepath.Dir(here)))
	if err := os.Mkdir(far, 0o755); err != nil {
		t.Skip("there is no second file system here")
	}

	t.Cleanup(func() { os.RemoveAll(far) })
	a, err1 := os.Stat(here)
	b, err2 := os.Stat(far)
	if err1 != nil || err2 != nil || fsys.StampOf(a).Device == fsys.StampOf(b).Device {
		t.Skip("there is no second file system here")
	}

	return far
}

func TestNumbered(t *testing.T) {
	long := strings.Repeat("ä", 125) + ".csv"
	for _, c := range []struct {
		name string
		i    int
		want string
	}{
		{"a.csv", 0, "a.csv"}, {"a.csv", 1, "a-2.csv"}, {"a.tar.gz", 2, "a.tar-3.gz"}, {"a", 1, "a-2"}, {".env", 1, ".env-2"},
		{long, 0, long}, {long, 1, strings.Repeat("ä", 124) + "-2.csv"},
	} {
		if got := numbered(c.name, c.i); got != c.want || len(got) > maxName {
			t.Errorf("%s, %d: %s", c.name, c.i, got)
		}
	}
}
