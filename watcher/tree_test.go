package watcher

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func trees(t *rapid.T, label string) tree {
	var files []sighting
	for _, name := range rapid.SliceOf(rapid.SampledFrom([]string{"a", "a.csv", "a/b", "a/b.csv", "b", "ä\n", "\xff", "sub/deep/x", "sub/deep/y", strings.Repeat("n", 255)})).Draw(t, label) {
		files = append(files, sighting{joinPath("/in", name), stamp{size: int64(rapid.IntRange(0, 2).Draw(t, "size")), modified: rapid.Int64Range(-2, 1<<60).Draw(t, "modified")}})
	}
	return newTree("/in", files)
}

// What is kept of a folder is read back, whatever is in it; what is different between two is
// what leads from one to the other.
func TestMemoryProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last, base := trees(t, "last"), trees(t, "base")
		m := memory{Shape: shape{Root: "/in", Include: []string{"*.csv"}}, Left: "x", last: last, base: base}
		text, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}

		got, err := decodeMemory(text)
		if err != nil || !slices.Equal(got.last, last) || !slices.Equal(got.base, base) || !got.Shape.equal(m.Shape) || got.Left != "x" {
			t.Fatalf("%+v (%v), want %+v", got, err, m)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatal("a text column cannot hold it")
		}

		changes, n, _ := changesBetween(base, last)
		names := map[string]bool{}
		for _, l := range base {
			names[l.path] = true
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
			if !names[l.path] {
				t.Fatalf("%s is not told of", l.path)
			}
		}
	})
}

func many(n int) tree {
	t := make(tree, n)
	for i := range t {
		t[i] = treeFile{path: fmt.Sprintf("customers/%03d/invoices/%07d.pdf", i/500, i), size: int64(i * 7919 % 100_000), modified: noon.Add(time.Duration(i) * 7919 * time.Microsecond).UnixNano()}
	}
	return t
}

// A hundred thousand files stay a row that a ledger can hold.
func TestMemoryOfManyFiles(t *testing.T) {
	all := many(100_000)
	text, err := (&memory{last: all, base: all[:50_000]}).encode()
	if err != nil || len(text) > 2<<20 {
		t.Fatalf("%d bytes (%v)", len(text), err)
	}

	t.Logf("%d bytes", len(text))
	got, err := decodeMemory(text)
	if err != nil || !slices.Equal(got.last, all) || !slices.Equal(got.base, all[:50_000]) {
		t.Fatalf("%d and %d files (%v)", len(got.last), len(got.base), err)
	}

	changes, n, _ := changesBetween(nil, all)
	if n != len(all) || len(changes.Added) != maxNames || changes.More != n-maxNames || changes.Added[0] != all[0].path {
		t.Errorf("%d, %d named, %d more", n, len(changes.Added), changes.More)
	}
}

// What cannot be read is an error, and not another folder.
func TestDecodeMemoryRefuses(t *testing.T) {
	all := many(100)
	text, err := (&memory{last: all, base: all}).encode()
	if err != nil {
		t.Fatal(err)
	}

	for _, bad := range []string{"", "3 " + text[2:], text[:len(text)/2], "1 ", "2 ", "2 !!", text[:40] + "AAAA" + text[44:]} {
		if got, err := decodeMemory(bad); err == nil && !slices.Equal(got.last, all) {
			t.Errorf("%.20q… was read as %d files", bad, len(got.last))
		}
	}
}

// A folder that cannot be read is taken for what it was.
func TestKeepUnreadable(t *testing.T) {
	known := tree{{path: "a"}, {path: "s/b", size: 1}, {path: "s/t/c", size: 2}, {path: "x/d", size: 3}}
	got := keepUnreadable("/in", tree{{path: "a"}, {path: "s/new"}}, known, map[string]error{filepath.FromSlash("/in/s/t"): errors.New("no")})
	if want := (tree{{path: "a"}, {path: "s/new"}, {path: "s/t/c", size: 2}}); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := keepUnreadable("/in", tree{{path: "a"}}, known, map[string]error{filepath.FromSlash("/in/x/d"): errors.New("no")}); len(got) != 2 || got[1] != known[3] {
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
		files[i] = sighting{joinPath("/in", l.path), stamp{size: l.size, modified: l.modified}}
	}

	for b.Loop() {
		newTree("/in", files).fingerprint()
	}
}

// Contents are recorded with the files whose content was read.
func TestMemoryOfContents(t *testing.T) {
	all := many(100)
	for i := range all[:50] {
		all[i].sum = contentSum{byte(i), 1}
	}

	text, err := (&memory{last: all, base: all[:25]}).encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeMemory(text); err != nil || !slices.Equal(got.last, all) || !slices.Equal(got.base, all[:25]) {
		t.Errorf("%+v, %v", got, err)
	}

	touched := slices.Clone(all)
	for i := range touched {
		touched[i].modified++
	}
	if _, n, _ := changesBetween(all, touched); n != 50 {
		t.Errorf("%d files are told to have changed; of 50 it is known that they have not", n)
	}
}

// OSA-92: a fingerprint is of paths, sizes and times, in whatever order they were found, and of nothing else.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	print := func(change func(files []sighting) []sighting) string {
		files := []sighting{{joinPath("/in", "a"), stamp{size: 1, modified: 7}}, {joinPath("/in", "a/b"), stamp{size: 2, modified: 8}}, {joinPath("/in", "ab"), stamp{size: 3, modified: 9}}}
		return newTree("/in", change(files)).fingerprint()
	}
	before := print(func(files []sighting) []sighting { return files })
	for name, c := range map[string]struct {
		change func(files []sighting) []sighting
		same   bool
	}{
		"another order":   {func(f []sighting) []sighting { slices.Reverse(f); return f }, true},
		"one found twice": {func(f []sighting) []sighting { return append(f, f[0]) }, true},
		"its owner":       {func(f []sighting) []sighting { f[0].stamp.changed++; return f }, true},
		"another name":    {func(f []sighting) []sighting { f[2].path = joinPath("/in", "ac"); return f }, false},
		"another size":    {func(f []sighting) []sighting { f[1].stamp.size++; return f }, false},
		"another time":    {func(f []sighting) []sighting { f[1].stamp.modified++; return f }, false},
		"one more":        {func(f []sighting) []sighting { return append(f, sighting{joinPath("/in", "c"), stamp{}}) }, false},
		"one less":        {func(f []sighting) []sighting { return f[1:] }, false},
	} {
		if after := print(c.change); (after == before) != c.same {
			t.Errorf("%s: the fingerprint is the same: %t", name, after == before)
		}
	}
}

// A run is told when the last of its files came, or where that cannot be told, was written; of those that did not change, nothing.
func TestChangesBetweenTellsOfTheLast(t *testing.T) {
	old := tree{{path: "a", size: 1, modified: 90}, {path: "b", size: 1, modified: 1}, {path: "c", size: 1, modified: 95}}
	for name, c := range map[string]struct {
		now  tree
		n    int
		last int64
	}{
		"nothing":                 {old, 0, 0},
		"written":                 {tree{old[0], {path: "b", size: 2, modified: 7}, old[2]}, 1, 7},
		"written long ago, moved": {tree{old[0], {path: "b", size: 1, modified: 2, changed: 9}, old[2]}, 1, 9},
		"the later one":           {tree{old[0], {path: "b", size: 1, modified: 8}, {path: "c", size: 1, modified: 7}}, 2, 8},
		"removed":                 {tree{old[0]}, 2, 0},
		"added":                   {append(slices.Clone(old), treeFile{path: "d", modified: 3}), 1, 3},
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
	one := treeFile{path: "a", size: 1, modified: 1, sum: contentSum{1}}
	for name, c := range map[string]struct {
		change func(l *treeFile)
		same   bool
	}{
		"nothing":                  {func(l *treeFile) {}, true},
		"time":                     {func(l *treeFile) { l.modified++ }, true},
		"time and content":         {func(l *treeFile) { l.modified++; l.sum = contentSum{2} }, false},
		"time, content not known":  {func(l *treeFile) { l.modified++; l.sum = contentSum{} }, false},
		"size":                     {func(l *treeFile) { l.size++ }, false},
		"size and time":            {func(l *treeFile) { l.size++; l.modified++ }, false},
		"content, written no more": {func(l *treeFile) { l.sum = contentSum{} }, true},
	} {
		other := one
		if c.change(&other); one.same(other) != c.same || other.same(one) != c.same {
			t.Errorf("%s: the same: %t", name, one.same(other))
		}
	}

	unknown, later := treeFile{path: "a", size: 1, modified: 1}, treeFile{path: "a", size: 1, modified: 2}
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

// A recorded shape selects by the settings of the time when it was recorded.
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
	known := tree{{path: "a.csv", size: 1}, {path: "gone.csv", size: 1}, {path: "old.csv", size: 1}}
	now := tree{{path: "a.csv", size: 2}, {path: "b.csv", size: 2}, {path: "new.csv", size: 2}, {path: "t.txt", size: 2}}
	for existing, want := range map[string]tree{
		ExistingIgnore:  {known[0], {path: "b.csv", size: 2}, known[1], {path: "t.txt", size: 2}},
		ExistingProcess: {known[0], known[1]},
	} {
		f := &folder{Watch: Watch{Exclude: []string{"old*"}, Existing: existing}, root: "/in"}
		m := memory{Shape: was, Left: "x", last: known, base: known[:1]}
		m.refit(f, now)
		if !slices.Equal(m.last, want) || m.Left != "" || !m.Shape.equal(f.shape()) {
			t.Errorf("%s: %+v, want %+v", existing, m, want)
		}
	}
}

// A length that cannot be is damage, and not memory that is asked for.
func TestDecodeMemoryRefusesLengths(t *testing.T) {
	const before = "abc"
	for name, c := range map[string]struct {
		same, n uint64
		text    string
		want    string
	}{
		"nothing in common":         {0, 2, "xy", "xy"},
		"some":                      {2, 2, "xy", "abxy"},
		"all":                       {3, 0, "", "abc"},
		"more than there is":        {4, 0, "", ""},
		"as long as it may be":      {0, 1 << 20, strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20)},
		"longer than it may be":     {0, 1<<20 + 1, strings.Repeat("x", 1<<20+1), ""},
		"longer than what is there": {0, 3, "xy", ""},
	} {
		r := bufio.NewReader(strings.NewReader(string(binary.AppendUvarint(nil, c.n)) + c.text))
		got, err := readBytes(r, c.same, before)
		if (err == nil) != (c.want != "") || err == nil && string(got) != c.want {
			t.Errorf("%s: %.20q, %v", name, got, err)
		}
	}
}
