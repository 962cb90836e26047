package watcher

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/watcher/after"
	"rouse/watcher/fsys"
	"rouse/watcher/tree"
)

// contents holds a folder and a tree of the files that were written to it.
func (d *harness) contents(files map[string]string) (*folder, tree.Tree) {
	d.t.Helper()
	d.set(after.Rule{})
	f := d.w.folders["in"]
	f.rootFound(d.path("inbox"))
	var cur []tree.Sighting
	for name, text := range files {
		path := d.write("inbox/"+name, text)
		info, err := os.Lstat(path)
		d.must(err)
		cur = append(cur, tree.Sighting{Path: path, Stamp: fsys.StampOf(info)})
	}
	return f, tree.New(f.root, cur)
}

func sumOf(text string) string {
	whole := sha256.Sum256([]byte(text))
	return hex.EncodeToString(whole[:16])
}

// TestRecognizeReadsWhatMayBeTheSame checks that a file keeps its checksum while its stamp is
// unchanged. A rewritten file of the same size is read. Files of other sizes cannot be unchanged
// and are not read.
func TestRecognizeReadsWhatMayBeTheSame(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f, cur := d.contents(map[string]string{"looks the same": "1", "written": "1", "longer": "1", "new": "1", "unknown": "1"})
	told, other := "1", "2"
	known := slices.Clone(cur)
	known = slices.DeleteFunc(known, func(l tree.File) bool { return l.Path == "new" })
	for i := range known {
		switch l := &known[i]; l.Path {
		case "looks the same":
			l.Sum = told
		case "written":
			l.Sum, l.Modified = other, l.Modified-1
		case "longer":
			l.Sum, l.Size = other, 7
		}
	}

	f.hashRewritten(t.Context(), cur, known)
	for path, want := range map[string]string{"looks the same": told, "written": sumOf("1"), "longer": "", "new": "", "unknown": ""} {
		if got := cur.Find(path).Sum; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestSumOfAChangedFile checks that a file that has changed since the scan has no checksum, because
// its content does not belong to the scan.
func TestSumOfAChangedFile(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f, cur := d.contents(map[string]string{"same": "1", "longer": "1", "later": "1", "gone": "1"})
	info, err := os.Lstat(d.path("inbox/longer"))
	d.must(err)
	d.write("inbox/longer", "22")
	d.must(os.Chtimes(d.path("inbox/longer"), info.ModTime(), info.ModTime()))
	d.must(os.Chtimes(d.path("inbox/later"), time.Time{}, time.Now().Add(time.Hour)))
	d.must(os.Remove(d.path("inbox/gone")))

	f.learnContents(t.Context(), cur)
	for path, want := range map[string]string{"same": sumOf("1"), "longer": "", "later": "", "gone": ""} {
		if got := cur.Find(path).Sum; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestContentsAreBounded checks the limits for reading files: the size of a file, the total size,
// and the number of files. The newest files come first.
func TestContentsAreBounded(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	files := map[string]string{"empty": "", "too long": ""}
	for i := range maxSummed/maxSummedFile + 1 {
		files[fmt.Sprint(i)] = ""
	}
	f, _ := d.contents(files)
	for name := range files {
		size := int64(maxSummedFile)
		switch name {
		case "empty":
			size = 0
		case "too long":
			size++
		}
		d.must(os.Truncate(d.path("inbox/"+name), size))
	}

	old := time.Now().Add(-time.Hour)
	var found []tree.Sighting
	for name := range files {
		at := old
		switch name {
		case "0":
			at = old.Add(-time.Second) // the oldest file except the empty one
		case "empty":
			at = old.Add(-time.Minute)
		}
		d.must(os.Chtimes(d.path("inbox/"+name), at, at))
		info, err := os.Lstat(d.path("inbox/" + name))
		d.must(err)
		found = append(found, tree.Sighting{Path: d.path("inbox/" + name), Stamp: fsys.StampOf(info)})
	}

	cur := tree.New(f.root, found)
	f.learnContents(t.Context(), cur)
	for _, l := range cur {
		if read := l.Sum != ""; read == strings.Contains("0, empty, too long", l.Path) {
			t.Errorf("%s was read: %t", l.Path, read)
		}
	}

	f, cur = d.contents(map[string]string{"a": "1", "b": "1"})
	cur[1].Modified = cur[0].Modified
	d.must(os.Chtimes(d.path("inbox/a"), time.Time{}, time.Unix(0, cur[0].Modified)))
	d.must(os.Chtimes(d.path("inbox/b"), time.Time{}, time.Unix(0, cur[0].Modified)))
	for i := range maxSums - 1 {
		cur = append(cur, tree.File{Path: fmt.Sprintf("c%05d", i), Sum: "1"})
	}
	f.learnContents(t.Context(), cur)
	if cur[0].Sum != sumOf("1") || cur[1].Sum != "" {
		t.Errorf("%x, %x: one more may be known", cur[0].Sum, cur[1].Sum)
	}
}
