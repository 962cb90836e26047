package watcher

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/watcher/fsys"
	"rouse/watcher/match"
)

func trees(t *rapid.T, label string) tree {
	var files []sighting
	for _, name := range rapid.SliceOf(rapid.SampledFrom([]string{"a", "a.csv", "a/b", "a/b.csv", "b", "ä\n", "\xff", "sub/deep/x", "sub/deep/y", strings.Repeat("n", 255)})).Draw(t, label) {
		files = append(files, sighting{fsys.JoinPath("/in", name), fsys.Stamp{Size: int64(rapid.IntRange(0, 2).Draw(t, "size")), Modified: rapid.Int64Range(-2, 1<<60).Draw(t, "modified")}})
	}
	return newTree("/in", files)
}

// What is kept of a folder is read back, whatever is in it; what is different between two is
// what leads from one to the other.
func TestMemoryProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last, base := trees(t, "last"), trees(t, "base")
		m := memory{Shape: shape{Root: "/in", Include: []string{"*.csv"}}, Left: "x", Last: last, Base: base}
		text, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}

		got, err := decodeMemory(text)
		if err != nil || !slices.Equal(got.Last, last) || !slices.Equal(got.Base, base) || !got.Shape.equal(m.Shape) || got.Left != "x" {
			t.Fatalf("%+v (%v), want %+v", got, err, m)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatal("a text column cannot hold it")
		}

		changes, n, _ := changesBetween(base, last)
		names := map[string]bool{}
		for _, l := range base {
			names[l.Path] = true
		}

		for _, name := range changes.Added {
			names[name] = true
		}

		for _, name := range changes.Removed {
			delete(names, name)
		}

		if len(names) != len(last) || n != len(changes.Added)+len(changes.Removed)+len(changes.Modified) || (n == 0) != (base.fingerprint() == last.fingerprint()) {
			t.Fatalf("%d changes %+v from %+v to %+v", n, changes, base, last)
		}

		for _, l := range last {
			if !names[l.Path] {
				t.Fatalf("%s is not told of", l.Path)
			}
		}
	})
}

func many(n int) tree {
	t := make(tree, n)
	for i := range t {
		t[i] = treeFile{Path: fmt.Sprintf("customers/%03d/invoices/%07d.pdf", i/500, i), Size: int64(i * 7919 % 100_000), Modified: noon.Add(time.Duration(i) * 7919 * time.Microsecond).UnixNano()}
	}
	return t
}

// A hundred thousand files stay a row that a ledger can hold.
func TestMemoryOfManyFiles(t *testing.T) {
	all := many(100_000)
	text, err := (&memory{Last: all, Base: all[:50_000]}).encode()
	if err != nil || len(text) > 3<<20 {
		t.Fatalf("%d bytes (%v)", len(text), err)
	}

	t.Logf("%d bytes", len(text))
	got, err := decodeMemory(text)
	if err != nil || !slices.Equal(got.Last, all) || !slices.Equal(got.Base, all[:50_000]) {
		t.Fatalf("%d and %d files (%v)", len(got.Last), len(got.Base), err)
	}

	changes, n, _ := changesBetween(nil, all)
	if n != len(all) || len(changes.Added) != maxNames || changes.More != n-maxNames || changes.Added[0] != all[0].Path {
		t.Errorf("%d, %d named, %d more", n, len(changes.Added), changes.More)
	}
}

// What cannot be read is an error, and not another folder.
func TestDecodeMemoryRefuses(t *testing.T) {
	all := many(100)
	text, err := (&memory{Last: all, Base: all}).encode()
	if err != nil {
		t.Fatal(err)
	}

	for _, bad := range []string{"", "2 " + text, text[:len(text)/2], text[:len(text)-4], "!!", text[:40] + "AAAA" + text[44:], text[:400] + "AAAA" + text[404:]} {
		if got, err := decodeMemory(bad); err == nil {
			t.Errorf("%.20q… was read as %d files", bad, len(got.Last))
		}
	}
}

// A folder that cannot be read is taken for what it was.
func TestKeepUnreadable(t *testing.T) {
	known := tree{{Path: "a"}, {Path: "s/b", Size: 1}, {Path: "s/t/c", Size: 2}, {Path: "x/d", Size: 3}}
	got := keepUnreadable("/in", tree{{Path: "a"}, {Path: "s/new"}}, known, map[string]error{filepath.FromSlash("/in/s/t"): errors.New("no")})
	if want := (tree{{Path: "a"}, {Path: "s/new"}, {Path: "s/t/c", Size: 2}}); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := keepUnreadable("/in", tree{{Path: "a"}}, known, map[string]error{filepath.FromSlash("/in/x/d"): errors.New("no")}); len(got) != 2 || got[1] != known[3] {
		t.Errorf("%+v", got)
	}
	if got := keepUnreadable("/in", nil, known, map[string]error{filepath.FromSlash("/in"): errors.New("no")}); !slices.Equal(got, known) {
		t.Errorf("%+v", got)
	}
}

func BenchmarkFingerprint(b *testing.B) {
	all := many(100_000)
	files := make([]sighting, len(all))
	for i, l := range all {
		files[i] = sighting{fsys.JoinPath("/in", l.Path), fsys.Stamp{Size: l.Size, Modified: l.Modified}}
	}

	for b.Loop() {
		newTree("/in", files).fingerprint()
	}
}

// Contents are recorded with the files whose content was read.
func TestMemoryOfContents(t *testing.T) {
	all := many(100)
	for i := range all[:50] {
		all[i].Sum = fmt.Sprint("sum ", i)
	}

	text, err := (&memory{Last: all, Base: all[:25]}).encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeMemory(text); err != nil || !slices.Equal(got.Last, all) || !slices.Equal(got.Base, all[:25]) {
		t.Errorf("%+v, %v", got, err)
	}

	touched := slices.Clone(all)
	for i := range touched {
		touched[i].Modified++
	}
	if _, n, _ := changesBetween(all, touched); n != 50 {
		t.Errorf("%d files are told to have changed; of 50 it is known that they have not", n)
	}
}

// OSA-92: a fingerprint is of paths, sizes and times, in whatever order they were found, and of nothing else.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	print := func(change func(files []sighting) []sighting) string {
		files := []sighting{{fsys.JoinPath("/in", "a"), fsys.Stamp{Size: 1, Modified: 7}}, {fsys.JoinPath("/in", "a/b"), fsys.Stamp{Size: 2, Modified: 8}}, {fsys.JoinPath("/in", "ab"), fsys.Stamp{Size: 3, Modified: 9}}}
		return newTree("/in", change(files)).fingerprint()
	}
	before := print(func(files []sighting) []sighting { return files })
	for name, c := range map[string]struct {
		change func(files []sighting) []sighting
		same   bool
	}{
		"another order":   {func(f []sighting) []sighting { slices.Reverse(f); return f }, true},
		"one found twice": {func(f []sighting) []sighting { return append(f, f[0]) }, true},
		"its owner":       {func(f []sighting) []sighting { f[0].stamp.Changed++; return f }, true},
		"another name":    {func(f []sighting) []sighting { f[2].path = fsys.JoinPath("/in", "ac"); return f }, false},
		"another size":    {func(f []sighting) []sighting { f[1].stamp.Size++; return f }, false},
		"another time":    {func(f []sighting) []sighting { f[1].stamp.Modified++; return f }, false},
		"one more":        {func(f []sighting) []sighting { return append(f, sighting{fsys.JoinPath("/in", "c"), fsys.Stamp{}}) }, false},
		"one less":        {func(f []sighting) []sighting { return f[1:] }, false},
	} {
		if after := print(c.change); (after == before) != c.same {
			t.Errorf("%s: the fingerprint is the same: %t", name, after == before)
		}
	}
}

// A run is told when the last of its files came, or where that cannot be told, was written; of those that did not change, nothing.
func TestChangesBetweenTellsOfTheLast(t *testing.T) {
	old := tree{{Path: "a", Size: 1, Modified: 90}, {Path: "b", Size: 1, Modified: 1}, {Path: "c", Size: 1, Modified: 95}}
	for name, c := range map[string]struct {
		now  tree
		n    int
		last int64
	}{
		"nothing":                 {old, 0, 0},
		"written":                 {tree{old[0], {Path: "b", Size: 2, Modified: 7}, old[2]}, 1, 7},
		"written long ago, moved": {tree{old[0], {Path: "b", Size: 1, Modified: 2, changed: 9}, old[2]}, 1, 9},
		"the later one":           {tree{old[0], {Path: "b", Size: 1, Modified: 8}, {Path: "c", Size: 1, Modified: 7}}, 2, 8},
		"removed":                 {tree{old[0]}, 2, 0},
		"added":                   {append(slices.Clone(old), treeFile{Path: "d", Modified: 3}), 1, 3},
	} {
		if _, n, last := changesBetween(old, c.now); n != c.n || last != c.last {
			t.Errorf("%s: %d files, the last at %d, want %d and %d", name, n, last, c.n, c.last)
		}
	}
}

// A run is told of exactly so many files by their names.
func TestChangesBetweenNamesSoMany(t *testing.T) {
	for _, n := range []int{maxNames - 1, maxNames, maxNames + 1} {
		c, all, _ := changesBetween(nil, many(n))
		if all != n || len(c.Added) != min(n, maxNames) || c.More != max(0, n-maxNames) {
			t.Errorf("%d files: %d named, %d more", n, len(c.Added), c.More)
		}
	}
}

// The same content is no change, where it is known; the same length alone is.
func TestSameFile(t *testing.T) {
	one := treeFile{Path: "a", Size: 1, Modified: 1, Sum: "1"}
	for name, c := range map[string]struct {
		change func(l *treeFile)
		same   bool
	}{
		"nothing":                  {func(l *treeFile) {}, true},
		"time":                     {func(l *treeFile) { l.Modified++ }, true},
		"time and content":         {func(l *treeFile) { l.Modified++; l.Sum = "2" }, false},
		"time, content not known":  {func(l *treeFile) { l.Modified++; l.Sum = "" }, false},
		"size":                     {func(l *treeFile) { l.Size++ }, false},
		"size and time":            {func(l *treeFile) { l.Size++; l.Modified++ }, false},
		"content, written no more": {func(l *treeFile) { l.Sum = "" }, true},
	} {
		other := one
		if c.change(&other); one.same(other) != c.same || other.same(one) != c.same {
			t.Errorf("%s: the same: %t", name, one.same(other))
		}
	}

	unknown, later := treeFile{Path: "a", Size: 1, Modified: 1}, treeFile{Path: "a", Size: 1, Modified: 2}
	if unknown.same(later) {
		t.Error("two files whose contents are not known are the same")
	}
}

// Which files a watch selects is a part of what is recorded: each setting of it counts.
func TestShapeEqual(t *testing.T) {
	one := shape{Root: "/in", Include: []string{"*.csv"}, Exclude: []string{"old"}, Closed: []string{"/in/inner"}}
	if !one.equal(one) {
		t.Error("a shape is not equal to itself")
	}
	for name, change := range map[string]func(s *shape){
		"root": func(s *shape) { s.Root = "/x" }, "include": func(s *shape) { s.Include = nil }, "exclude": func(s *shape) { s.Exclude = nil },
		"recursive": func(s *shape) { s.Recursive = true }, "links": func(s *shape) { s.Links = true }, "closed": func(s *shape) { s.Closed = nil },
		"exact": func(s *shape) { s.Exact = true },
	} {
		other := one
		if change(&other); one.equal(other) {
			t.Errorf("another %s is not noticed", name)
		}
	}
}

// A recorded shape selects files by the settings of the watch at that time.
func TestShapeSelects(t *testing.T) {
	for _, c := range []struct {
		shape   shape
		yes, no string
	}{
		{shape{}, "a.csv", "sub/a.csv .a"},
		{shape{Recursive: true}, "a.csv sub/a.csv", ".git/a"},
		{shape{Recursive: true, Closed: []string{"/in/inner"}}, "a.csv innermost/a inner", "inner/a inner/b/a"},
		{shape{Include: []string{"*.pdf"}}, "a.pdf A.PDF", "a.csv"},
		{shape{Include: []string{"*.pdf"}, Exact: true}, "a.pdf", "A.PDF"},
		{shape{Exclude: []string{"*.pdf"}}, "a.csv", "a.pdf A.PDF"},
	} {
		c.shape.Root = "/in"
		for _, rel := range strings.Fields(c.yes) {
			if !c.shape.selects(rel) {
				t.Errorf("%+v does not select %s", c.shape, rel)
			}
		}
		for _, rel := range strings.Fields(c.no) {
			if c.shape.selects(rel) {
				t.Errorf("%+v selects %s", c.shape, rel)
			}
		}
	}
}

// A watch that selects other files than before takes those for known that it did not select, unless existing files are processed,
// and knows nothing of those that it selects no more.
func TestRefit(t *testing.T) {
	was := shape{Root: "/in", Include: []string{"*.csv"}, Exclude: []string{"b.csv"}}
	known := tree{{Path: "a.csv", Size: 1}, {Path: "gone.csv", Size: 1}, {Path: "old.csv", Size: 1}}
	now := tree{{Path: "a.csv", Size: 2}, {Path: "b.csv", Size: 2}, {Path: "new.csv", Size: 2}, {Path: "t.txt", Size: 2}}
	for existing, want := range map[string]tree{
		ExistingIgnore:  {known[0], {Path: "b.csv", Size: 2}, known[1], {Path: "t.txt", Size: 2}},
		ExistingProcess: {known[0], known[1]},
	} {
		f := &folder{Watch: Watch{Filter: match.Filter{Exclude: []string{"old*"}}, Existing: existing}, root: "/in"}
		m := memory{Shape: was, Left: "x", Last: known, Base: known[:1]}
		m.refit(f, now)
		if !slices.Equal(m.Last, want) || m.Left != "" || !m.Shape.equal(f.shape()) {
			t.Errorf("%s: %+v, want %+v", existing, m, want)
		}
	}
}
