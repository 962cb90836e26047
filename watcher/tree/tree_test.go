package tree

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
)

func trees(t *rapid.T, label string) Tree {
	var files []Sighting
	for _, name := range rapid.SliceOf(rapid.SampledFrom([]string{"a", "a.csv", "a/b", "a/b.csv", "b", "ä\n", "\xff", "sub/deep/x", "sub/deep/y", strings.Repeat("n", 255)})).Draw(t, label) {
		files = append(files, Sighting{fsys.JoinPath("/in", name), fsys.Stamp{Size: int64(rapid.IntRange(0, 2).Draw(t, "size")), Modified: rapid.Int64Range(-2, 1<<60).Draw(t, "modified")}})
	}
	return New("/in", files)
}

// TestSnapshotProperty checks that any snapshot can be decoded again, and that the changes between
// two trees lead from one to the other.
func TestSnapshotProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last, base := trees(t, "last"), trees(t, "base")
		m := Snapshot{Shape: Selection{Root: "/in", Include: []string{"*.csv"}}, Left: "x", Last: last, Base: base}
		text, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}

		got, err := Decode(text)
		if err != nil || !slices.Equal(got.Last, last) || !slices.Equal(got.Base, base) || !got.Shape.Equal(m.Shape) || got.Left != "x" {
			t.Fatalf("%+v (%v), want %+v", got, err, m)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatal("a text column cannot hold it")
		}

		changes, n, _ := Changes(base, last)
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

		if len(names) != len(last) || n != len(changes.Added)+len(changes.Removed)+len(changes.Modified) || (n == 0) != (base.Fingerprint() == last.Fingerprint()) {
			t.Fatalf("%d changes %+v from %+v to %+v", n, changes, base, last)
		}

		for _, l := range last {
			if !names[l.Path] {
				t.Fatalf("%s is not told of", l.Path)
			}
		}
	})
}

func many(n int) Tree {
	t := make(Tree, n)
	for i := range t {
		t[i] = File{Path: fmt.Sprintf("customers/%03d/invoices/%07d.pdf", i/500, i), Size: int64(i * 7919 % 100_000), Modified: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(i) * 7919 * time.Microsecond).UnixNano()}
	}
	return t
}

// TestSnapshotOfManyFiles checks that the snapshot of a hundred thousand files fits into a row of
// the ledger.
func TestSnapshotOfManyFiles(t *testing.T) {
	all := many(100_000)
	text, err := (&Snapshot{Last: all, Base: all[:50_000]}).Encode()
	if err != nil || len(text) > 3<<20 {
		t.Fatalf("%d bytes (%v)", len(text), err)
	}

	t.Logf("%d bytes", len(text))
	got, err := Decode(text)
	if err != nil || !slices.Equal(got.Last, all) || !slices.Equal(got.Base, all[:50_000]) {
		t.Fatalf("%d and %d files (%v)", len(got.Last), len(got.Base), err)
	}

	changes, n, _ := Changes(nil, all)
	if n != len(all) || len(changes.Added) != maxNames || changes.More != n-maxNames || changes.Added[0] != all[0].Path {
		t.Errorf("%d, %d named, %d more", n, len(changes.Added), changes.More)
	}
}

// TestDecodeSnapshotRefuses checks that damaged text is an error and not another tree.
func TestDecodeSnapshotRefuses(t *testing.T) {
	all := many(100)
	text, err := (&Snapshot{Last: all, Base: all}).Encode()
	if err != nil {
		t.Fatal(err)
	}

	for _, bad := range []string{"", "2 " + text, text[:len(text)/2], text[:len(text)-4], "!!", text[:40] + "AAAA" + text[44:], text[:400] + "AAAA" + text[404:]} {
		if got, err := Decode(bad); err == nil {
			t.Errorf("%.20q… was read as %d files", bad, len(got.Last))
		}
	}
}

// TestKeepUnreadable checks that an unreadable folder keeps its recorded files.
func TestKeepUnreadable(t *testing.T) {
	known := Tree{{Path: "a"}, {Path: "s/b", Size: 1}, {Path: "s/t/c", Size: 2}, {Path: "x/d", Size: 3}}
	got := KeepUnreadable("/in", Tree{{Path: "a"}, {Path: "s/new"}}, known, map[string]error{filepath.FromSlash("/in/s/t"): errors.New("no")})
	if want := (Tree{{Path: "a"}, {Path: "s/new"}, {Path: "s/t/c", Size: 2}}); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := KeepUnreadable("/in", Tree{{Path: "a"}}, known, map[string]error{filepath.FromSlash("/in/x/d"): errors.New("no")}); len(got) != 2 || got[1] != known[3] {
		t.Errorf("%+v", got)
	}
	if got := KeepUnreadable("/in", nil, known, map[string]error{filepath.FromSlash("/in"): errors.New("no")}); !slices.Equal(got, known) {
		t.Errorf("%+v", got)
	}
}

func BenchmarkFingerprint(b *testing.B) {
	all := many(100_000)
	files := make([]Sighting, len(all))
	for i, l := range all {
		files[i] = Sighting{fsys.JoinPath("/in", l.Path), fsys.Stamp{Size: l.Size, Modified: l.Modified}}
	}

	for b.Loop() {
		New("/in", files).Fingerprint()
	}
}

// TestSnapshotOfContents checks that checksums are recorded for the files that were read.
func TestSnapshotOfContents(t *testing.T) {
	all := many(100)
	for i := range all[:50] {
		all[i].Sum = fmt.Sprint("sum ", i)
	}

	text, err := (&Snapshot{Last: all, Base: all[:25]}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(text); err != nil || !slices.Equal(got.Last, all) || !slices.Equal(got.Base, all[:25]) {
		t.Errorf("%+v, %v", got, err)
	}

	touched := slices.Clone(all)
	for i := range touched {
		touched[i].Modified++
	}
	if _, n, _ := Changes(all, touched); n != 50 {
		t.Errorf("%d files are told to have changed; of 50 it is known that they have not", n)
	}
}

// TestFingerprint checks that a fingerprint depends only on paths, sizes and times, and not on
// their order (OSA-92).
func TestFingerprint(t *testing.T) {
	t.Parallel()
	print := func(change func(files []Sighting) []Sighting) string {
		files := []Sighting{{fsys.JoinPath("/in", "a"), fsys.Stamp{Size: 1, Modified: 7}}, {fsys.JoinPath("/in", "a/b"), fsys.Stamp{Size: 2, Modified: 8}}, {fsys.JoinPath("/in", "ab"), fsys.Stamp{Size: 3, Modified: 9}}}
		return New("/in", change(files)).Fingerprint()
	}
	before := print(func(files []Sighting) []Sighting { return files })
	for name, c := range map[string]struct {
		change func(files []Sighting) []Sighting
		same   bool
	}{
		"another order":   {func(f []Sighting) []Sighting { slices.Reverse(f); return f }, true},
		"one found twice": {func(f []Sighting) []Sighting { return append(f, f[0]) }, true},
		"its owner":       {func(f []Sighting) []Sighting { f[0].Stamp.Changed++; return f }, true},
		"another name":    {func(f []Sighting) []Sighting { f[2].Path = fsys.JoinPath("/in", "ac"); return f }, false},
		"another size":    {func(f []Sighting) []Sighting { f[1].Stamp.Size++; return f }, false},
		"another time":    {func(f []Sighting) []Sighting { f[1].Stamp.Modified++; return f }, false},
		"one more":        {func(f []Sighting) []Sighting { return append(f, Sighting{fsys.JoinPath("/in", "c"), fsys.Stamp{}}) }, false},
		"one less":        {func(f []Sighting) []Sighting { return f[1:] }, false},
	} {
		if after := print(c.change); (after == before) != c.same {
			t.Errorf("%s: the fingerprint is the same: %t", name, after == before)
		}
	}
}

// TestChangesBetweenTellsOfTheLast checks the time of the last change: its arrival or, if that is
// unknown, its last write. Unchanged files do not count.
func TestChangesBetweenTellsOfTheLast(t *testing.T) {
	old := Tree{{Path: "a", Size: 1, Modified: 90}, {Path: "b", Size: 1, Modified: 1}, {Path: "c", Size: 1, Modified: 95}}
	for name, c := range map[string]struct {
		now  Tree
		n    int
		last int64
	}{
		"nothing":                 {old, 0, 0},
		"written":                 {Tree{old[0], {Path: "b", Size: 2, Modified: 7}, old[2]}, 1, 7},
		"written long ago, moved": {Tree{old[0], {Path: "b", Size: 1, Modified: 2, changed: 9}, old[2]}, 1, 9},
		"the later one":           {Tree{old[0], {Path: "b", Size: 1, Modified: 8}, {Path: "c", Size: 1, Modified: 7}}, 2, 8},
		"removed":                 {Tree{old[0]}, 2, 0},
		"added":                   {append(slices.Clone(old), File{Path: "d", Modified: 3}), 1, 3},
	} {
		if _, n, last := Changes(old, c.now); n != c.n || last != c.last {
			t.Errorf("%s: %d files, the last at %d, want %d and %d", name, n, last, c.n, c.last)
		}
	}
}

// TestChangesBetweenNamesSoMany checks the maximum number of changed files by name.
func TestChangesBetweenNamesSoMany(t *testing.T) {
	for _, n := range []int{maxNames - 1, maxNames, maxNames + 1} {
		c, all, _ := Changes(nil, many(n))
		if all != n || len(c.Added) != min(n, maxNames) || c.More != max(0, n-maxNames) {
			t.Errorf("%d files: %d named, %d more", n, len(c.Added), c.More)
		}
	}
}

// TestSameFile checks that a rewrite with the same known content is not a change, while the same
// size alone is.
func TestSameFile(t *testing.T) {
	one := File{Path: "a", Size: 1, Modified: 1, Sum: "1"}
	for name, c := range map[string]struct {
		change func(l *File)
		same   bool
	}{
		"nothing":                  {func(l *File) {}, true},
		"time":                     {func(l *File) { l.Modified++ }, true},
		"time and content":         {func(l *File) { l.Modified++; l.Sum = "2" }, false},
		"time, content not known":  {func(l *File) { l.Modified++; l.Sum = "" }, false},
		"size":                     {func(l *File) { l.Size++ }, false},
		"size and time":            {func(l *File) { l.Size++; l.Modified++ }, false},
		"content, written no more": {func(l *File) { l.Sum = "" }, true},
	} {
		other := one
		if c.change(&other); one.same(other) != c.same || other.same(one) != c.same {
			t.Errorf("%s: the same: %t", name, one.same(other))
		}
	}

	unknown, later := File{Path: "a", Size: 1, Modified: 1}, File{Path: "a", Size: 1, Modified: 2}
	if unknown.same(later) {
		t.Error("two files whose contents are not known are the same")
	}
}

// TestShapeEqual checks that each setting of a selection is compared.
func TestShapeEqual(t *testing.T) {
	one := Selection{Root: "/in", Include: []string{"*.csv"}, Exclude: []string{"old"}, Closed: []string{"/in/inner"}}
	if !one.Equal(one) {
		t.Error("a shape is not equal to itself")
	}
	for name, change := range map[string]func(s *Selection){
		"root": func(s *Selection) { s.Root = "/x" }, "include": func(s *Selection) { s.Include = nil }, "exclude": func(s *Selection) { s.Exclude = nil },
		"recursive": func(s *Selection) { s.Recursive = true }, "links": func(s *Selection) { s.Links = true }, "closed": func(s *Selection) { s.Closed = nil },
		"exact": func(s *Selection) { s.Exact = true },
	} {
		other := one
		if change(&other); one.Equal(other) {
			t.Errorf("another %s is not noticed", name)
		}
	}
}

// TestSelectionSelects checks that a recorded selection uses the settings of the watch at that
// time.
func TestSelectionSelects(t *testing.T) {
	for _, c := range []struct {
		shape   Selection
		yes, no string
	}{
		{Selection{}, "a.csv", "sub/a.csv .a"},
		{Selection{Recursive: true}, "a.csv sub/a.csv", ".git/a"},
		{Selection{Recursive: true, Closed: []string{"/in/inner"}}, "a.csv innermost/a inner", "inner/a inner/b/a"},
		{Selection{Include: []string{"*.pdf"}}, "a.pdf A.PDF", "a.csv"},
		{Selection{Include: []string{"*.pdf"}, Exact: true}, "a.pdf", "A.PDF"},
		{Selection{Exclude: []string{"*.pdf"}}, "a.csv", "a.pdf A.PDF"},
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

// TestApplySelection checks that newly selected files count as unchanged, unless existing files are
// processed, and that files that are no longer selected are dropped.
func TestApplySelection(t *testing.T) {
	was := Selection{Root: "/in", Include: []string{"*.csv"}, Exclude: []string{"b.csv"}}
	known := Tree{{Path: "a.csv", Size: 1}, {Path: "gone.csv", Size: 1}, {Path: "old.csv", Size: 1}}
	now := Tree{{Path: "a.csv", Size: 2}, {Path: "b.csv", Size: 2}, {Path: "new.csv", Size: 2}, {Path: "t.txt", Size: 2}}
	for process, want := range map[bool]Tree{
		false: {known[0], {Path: "b.csv", Size: 2}, known[1], {Path: "t.txt", Size: 2}},
		true:  {known[0], known[1]},
	} {
		next := Selection{Root: "/in", Exclude: []string{"old*"}}
		m := Snapshot{Shape: was, Left: "x", Last: known, Base: known[:1]}
		m.ApplySelection(next, now, process)
		if !slices.Equal(m.Last, want) || m.Left != "" || !m.Shape.Equal(next) {
			t.Errorf("%t: %+v, want %+v", process, m, want)
		}
	}
}
