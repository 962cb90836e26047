package nofollow_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"rouse/internal/nofollow"
)

// tree creates folders, files and links below a temporary folder, and returns its real path. A
// value with the prefix "->" is a link. A name ending in "/" is a folder. Otherwise the value is
// the content of a file.
func tree(t *testing.T, of ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	for i := 0; i < len(of); i += 2 {
		path, what := filepath.Join(dir, of[i]), of[i+1]
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case what == "/":
			err = os.MkdirAll(path, 0o755)
		case len(what) > 2 && what[:2] == "->":
			to := what[2:]
			if to[0] == '/' {
				to = filepath.Join(dir, to)
			}
			err = os.Symlink(to, path)
		default:
			err = os.WriteFile(path, []byte(what), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// Links above the boundary are followed, but not links below it, in any part of the path.
func TestOpen(t *testing.T) {
	t.Parallel()
	dir := tree(t,
		"disk/work/in/a.txt", "inside", "disk/work/deep/er/b.txt", "deeper", "secret/in/a.txt", "secret", "own/a.txt", "own",
		"link", "->disk", "rel", "->./link/work", "chain", "->link/../link/work/in", "own/l.txt", "->a.txt",
		"disk/work/out", "->/secret", "disk/work/deep/up", "->../in", "disk/work/in/l.txt", "->a.txt", "loop", "->loop")
	work := filepath.Join(dir, "link", "work") // the owner's path contains a link

	for _, c := range []struct{ path, text, link string }{
		{"disk/work/in/a.txt", "inside", ""},
		{"link/work/in/a.txt", "inside", ""},
		{"rel/in/a.txt", "inside", ""},
		{"chain/a.txt", "inside", ""},
		{"link/work/deep/er/../er/b.txt", "deeper", ""},
		{"own/a.txt", "own", ""},
		{"own/l.txt", "own", ""},
		{"disk/work/../../own/l.txt", "own", ""},
		{"link/work/out/in/a.txt", "", "disk/work/out"},
		{"disk/work/deep/up/a.txt", "", "disk/work/deep/up"},
		{"rel/in/l.txt", "", "disk/work/in/l.txt"},
	} {
		got, err := contentOf(nofollow.NewBoundary(work), filepath.FromSlash(dir+"/"+c.path))
		var link *nofollow.LinkError
		errors.As(err, &link)
		switch {
		case c.link == "" && (err != nil || string(got) != c.text):
			t.Errorf("%s: %q, %v", c.path, got, err)
		case c.link != "" && (link == nil || link.Path != filepath.Join(dir, c.link) || link.Folder != filepath.Join(dir, "disk", "work")):
			t.Errorf("%s: %q, %v", c.path, got, err)
		}
	}

	for _, path := range []string{"own", "disk/work", "disk/work/deep/er", "link/work/in"} { // without links
		root, err := nofollow.NewBoundary(work).OpenRoot(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(dir, strings.Replace(path, "link", "disk", 1)); root.Name() != want {
			t.Errorf("%s is %s", want, root.Name())
		}
		root.Close()
	}
	if _, err := (nofollow.UntrustedDirs{}).OpenRoot(filepath.Join(dir, "own", "a.txt")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file was opened as a folder: %v", err)
	}
	if _, err := (nofollow.UntrustedDirs{}).OpenRoot(""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no path led to a folder: %v", err)
	}
	for _, path := range []string{"loop/a", "nowhere/a.txt", "disk/work/in/a.txt/b", "disk/work", "own"} {
		if _, err := contentOf(nofollow.NewBoundary(work), filepath.Join(dir, path)); err == nil {
			t.Errorf("%s was read", path)
		}
	}
}

// Without a boundary, every link is followed.
func TestNoBoundary(t *testing.T) {
	t.Parallel()
	dir := tree(t, "a/b.txt", "text", "l", "->a", "a/l.txt", "->b.txt")
	if text, err := contentOf(nofollow.UntrustedDirs{}, filepath.Join(dir, "l", "l.txt")); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
}

// Folders are created below the boundary, but never through a link. A link in the path is an error.
func TestMakeRoot(t *testing.T) {
	t.Parallel()
	dir := tree(t, "work/", "/", "out/", "/", "work/link", "->../out", "work/file", "text", "work/gone", "->../out/new")
	b := nofollow.NewBoundary(filepath.Join(dir, "work"), filepath.Join(dir, "later"))

	for _, path := range []string{"work/a/b/c", "work", "later/x", "plain/y"} {
		root, err := b.MakeRoot(filepath.Join(dir, path), 0o750)
		if err != nil {
			t.Fatal(err)
		}
		if err := root.WriteFile("here", nil, 0o644); err != nil {
			t.Error(err)
		}
		root.Close()
		if _, err := os.Lstat(filepath.Join(dir, path, "here")); err != nil {
			t.Error(err)
		}
	}

	var link *nofollow.LinkError
	for _, path := range []string{"work/link", "work/link/a", "work/gone", "work/gone/a"} {
		if _, err := b.MakeRoot(filepath.Join(dir, path), 0o750); !errors.As(err, &link) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := b.MakeRoot(filepath.Join(dir, "work", "file", "a"), 0o750); err == nil {
		t.Error("a folder was made in a file")
	}
	if left, err := os.ReadDir(filepath.Join(dir, "out")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// Below an open folder, links are not followed, even if they stay within it. The folder remains the
// one that was opened, even if another one has its name now.
func TestBelow(t *testing.T) {
	t.Parallel()
	dir := tree(t, "work/a/b/f", "inside", "work/link", "->a", "out/a/b/f", "outside")
	in, err := os.OpenRoot(filepath.Join(dir, "work"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := errors.Join(os.Rename(filepath.Join(dir, "work"), filepath.Join(dir, "aside")), os.Symlink("out", filepath.Join(dir, "work"))); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{"a/b": "inside", "a/./b/": "inside", "": "", "link/b": "link", "link": "link", "../out/a/b": "escapes", "new": "not exist"} {
		text, below := []byte(nil), error(nil)
		folder, err := nofollow.OpenBelow(in, path)
		if err == nil {
			text, below = folder.ReadFile("f")
			folder.Close()
		}

		var link *nofollow.LinkError
		switch want {
		case "":
			if err != nil || !errors.Is(below, fs.ErrNotExist) {
				t.Errorf("%q: %v, %v", path, err, below)
			}
		case "inside":
			if err != nil || below != nil || string(text) != want {
				t.Errorf("%q: %q, %v, %v", path, text, err, below)
			}
		case "link":
			if !errors.As(err, &link) {
				t.Errorf("%q: %v", path, err)
			}
		default:
			if err == nil {
				t.Errorf("%q was opened", path)
			}
		}
	}

	made, err := nofollow.MakeBelow(in, "new/er", 0o750)
	if err != nil {
		t.Fatal(err)
	}
	made.Close()
	if info, err := os.Stat(filepath.Join(dir, "aside/new/er")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", info, err)
	}
	if made, err := nofollow.MakeBelow(in, "link/new", 0o750); err == nil {
		t.Error("a folder was made behind a link")
		made.Close()
	}
}

// Resolve and Holds follow only links above the boundary. A folder inside another one has no
// effect.
func TestHolds(t *testing.T) {
	t.Parallel()
	dir := tree(t, "disk/work/sub", "/", "link", "->disk/work", "disk/work/out", "->/disk", "disk/work/x/f", "text")
	b := nofollow.NewBoundary(filepath.Join(dir, "disk", "work", "out", "sub"), filepath.Join(dir, "link"))

	for path, want := range map[string][2]string{
		"link":         {"disk/work", ""},
		"link/sub":     {"disk/work/sub", "disk/work"},
		"link/out/a":   {"disk/work/out/a", "disk/work"},
		"disk/work/..": {"disk", ""},
		"disk/other":   {"disk/other", ""},
	} {
		resolved, err := b.Resolve(dir + "/" + path)
		held := b.Holds(dir + "/" + path)
		if want[1] != "" {
			want[1] = filepath.Join(dir, want[1])
		}
		if err != nil || resolved != filepath.Join(dir, want[0]) || held != want[1] {
			t.Errorf("%s: %s in %q, %v", path, resolved, held, err)
		}

		covered := want[1] != "" || path == "link"
		if within := b.Within(dir + "/" + path); b.Covers(dir+"/"+path) != covered || filepath.Join(held, within) != resolved && held != "" {
			t.Errorf("%s: covered %t, with %q below %q", path, !covered, within, held)
		}
	}
}

// Repeatedly swapping a folder for a link does not lead an open out of the boundary.
func TestSwaps(t *testing.T) {
	t.Parallel()
	dir := tree(t, "work/in/a.txt", "inside", "out/a.txt", "outside")
	in, aside := filepath.Join(dir, "work", "in"), filepath.Join(dir, "work", "aside")
	b := nofollow.NewBoundary(filepath.Join(dir, "work"))

	done := make(chan struct{})
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = os.Rename(in, aside)
			_ = os.Symlink(filepath.Join(dir, "out"), in)
			_ = os.Remove(in)
			_ = os.Rename(aside, in)
		}
	})

	read := 0
	for range 3000 {
		// The error depends on the time of the swap.
		text, err := contentOf(b, filepath.Join(in, "a.txt"))
		if err == nil && string(text) != "inside" {
			t.Errorf("%q was read", text)
			break
		} else if err == nil {
			read++
		}
	}
	close(done)
	swaps.Wait()
	if read == 0 {
		t.Error("nothing was read in between")
	}
}

// Stat and ReadDir do not follow a link below the boundary.
func TestStat(t *testing.T) {
	t.Parallel()
	dir := tree(t, "disk/work/in/a.txt", "inside", "out/b.txt", "outside", "link", "->disk", "disk/work/l", "->/out", "disk/work/f", "->/out/b.txt")
	b := nofollow.NewBoundary(filepath.Join(dir, "link", "work"))

	for path, folder := range map[string]bool{"link/work/in": true, "link/work/in/a.txt": false, "link": true, "link/work": true} {
		if info, err := b.Stat(filepath.Join(dir, path)); err != nil || info.IsDir() != folder {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if info, err := b.Stat("/"); err != nil || !info.IsDir() {
		t.Errorf("/: %v, %v", info, err)
	}
	if list, err := b.ReadDir(filepath.Join(dir, "link", "work", "in")); err != nil || len(list) != 1 || list[0].Name() != "a.txt" {
		t.Errorf("%v, %v", list, err)
	}

	var link *nofollow.LinkError
	for _, path := range []string{"link/work/l", "link/work/l/b.txt", "link/work/f"} {
		if _, err := b.Stat(filepath.Join(dir, path)); !errors.As(err, &link) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := b.ReadDir(filepath.Join(dir, path)); !errors.As(err, &link) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A link below the boundary does not move the boundary, whichever path leads there.
func TestBoundaryByLinks(t *testing.T) {
	t.Parallel()
	dir := tree(t, "own/deep/work/x", "/", "in", "->own/deep/work/in", "own/deep/work/in", "->/")
	work := filepath.Join(dir, "own", "deep", "work")
	b := nofollow.NewBoundary(filepath.Join(dir, "in"), filepath.Join(work, "in"), work)

	if held := b.Holds(filepath.Join(dir, "own", "deep")); held != "" {
		t.Errorf("%s was taken for a place of strangers", held)
	}
	if !b.Equal(nofollow.NewBoundary(work)) || b.Equal(nofollow.UntrustedDirs{}) {
		t.Errorf("%+v", b)
	}
}

// TestGlance: the cached state applies to all paths. A link created later is not followed, but a
// link after ".." behind a missing name is.
func TestGlance(t *testing.T) {
	t.Parallel()
	dir := tree(t, "disk/work/a.txt", "a", "link", "->disk", "chain", "->link/work", "loop", "->loop")
	glance := nofollow.NewStatCache()
	resolves := func(path, want string) {
		t.Helper()
		real, err := glance.Resolve(dir + "/" + path)
		if want == "" {
			if err == nil {
				t.Errorf("%s was resolved: %s", path, real)
			}
			return
		}
		if err != nil || real != filepath.Join(dir, want) {
			t.Errorf("%s is %s, want %s, %v", path, real, want, err)
		}
	}

	for range 2 { // without and with the cache
		resolves("link/work/a.txt", "disk/work/a.txt")
		resolves("chain/a.txt", "disk/work/a.txt")
		resolves("missing/below/it", "missing/below/it")
		resolves("missing/../link/work", "disk/work")
		resolves("missing/below/../../chain/other", "disk/work/other")
		resolves("loop/a", "")
	}

	if err := os.Symlink("disk", filepath.Join(dir, "missing")); err != nil {
		t.Fatal(err)
	}
	resolves("missing/below/it", "missing/below/it")
	if real, err := (nofollow.UntrustedDirs{}).Resolve(dir + "/missing/below"); err != nil || real != filepath.Join(dir, "disk/below") {
		t.Errorf("%s, %v", real, err)
	}
}

// contentOf returns the content of a file that Open opens.
func contentOf(b nofollow.UntrustedDirs, path string) ([]byte, error) {
	file, err := b.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	return io.ReadAll(file)
}
