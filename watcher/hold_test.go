package watcher

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Which names are those of a download that goes on: in any case, with the random part before the first dot or none.
func TestPartialOf(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       bool
	}{
		{"x.pdf.part", "x.pdf", true}, {"X.PDF.PART", "x.pdf", true}, {"x.AbCd1234.pdf.part", "x.pdf", true},
		{"x.AbCd1234.tar.gz.part", "x.tar.gz", true}, {"x.AbCd1234.part", "x", true}, {"x.part", "x", true},
		{"x.pdf.crdownload", "x.pdf", true}, {"x.pdf.download", "x.pdf", true},
		{"y.pdf.part", "x.pdf", false}, {"x.a.b.pdf.part", "x.pdf", false}, {"x..pdf.part", "x.pdf", false},
		{"x.pdf.part", "x.pdf.part", false}, {"x.pdf", "x.pdf", false}, {"x.pdf.tmp", "x.pdf", false},
		{"xa.pdf.part", "x.pdf", false}, {"x.pdf.a.part", "x.pdf", false}, {".part", "", true},
	} {
		if got := isPartialOf(c.name, c.file); got != c.want {
			t.Errorf("%s beside %s: %v", c.name, c.file, got)
		}
	}
}

// Whatever the names are, none panics; the two forms that Firefox gives are found.
func FuzzPartialOf(f *testing.F) {
	f.Add("x.tar.gz", "AbCd1234")
	f.Add("x", "")
	f.Add(".", ".")
	f.Fuzz(func(t *testing.T, file, random string) {
		isPartialOf(file, random)
		if !isPartialOf(file+".part", file) {
			t.Errorf("%q is not waited for by %q", file+".part", file)
		}
	})
}

// A file waits the longer the longer it has waited, within bounds, and is a problem after a while.
func TestWaitPause(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		kind    holdKind
		waited  time.Duration
		want    time.Duration
		problem bool
	}{
		{heldOpen, 0, time.Second, false}, {heldOpen, 40 * time.Second, 5 * time.Second, false}, {heldOpen, time.Hour, heldPause, true}, {heldByPart, 24 * time.Hour, heldPause, true},
		{heldLink, time.Second, time.Second, false}, {heldLink, 10 * time.Second, 1250 * time.Millisecond, true}, {heldLink, 24 * time.Hour, heldLinkPause, true},
	} {
		w := Wait{kind: c.kind, Since: now.Add(-c.waited)}
		if got := w.pause(now, time.Second); got != c.want || w.problem(now) != c.problem {
			t.Errorf("%v after %s: %s, %v", c.kind, c.waited, got, w.problem(now))
		}
	}
}

// The folder is read once for many empty files, and again once something came into it.
func TestPartialNames(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()

	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		// A folder that has just changed is read each time: its time would not show another change.
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	known := partialNames{}
	beside := func(name, want string) {
		t.Helper()
		if got, err := known.beside(fileHandle{root, name}); err != nil || got != want {
			t.Errorf("beside %s: %q (%v), want %q", name, got, err, want)
		}
	}

	write("x.pdf")
	beside("x.pdf", "")
	write("x.pdf.part")
	clear(known) // the times above hide it, as they are meant to
	beside("x.pdf", "x.pdf.part")
	known[dir] = partialList{folder: known[dir].folder, names: []string{"told.pdf.part"}}
	beside("told.pdf", "told.pdf.part")
	if err := os.Chtimes(dir, time.Now(), time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	beside("told.pdf", "")
	beside("x.pdf", "x.pdf.part")
}
