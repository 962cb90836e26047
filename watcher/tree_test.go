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

// What an older version recorded, which knew no contents, can still be read.
func TestDecodeMemoryWithoutSums(t *testing.T) {
	const recorded = "1 yq1WCs5ILEhVsqpWCsrPL1GyUtLPzFPSUfLMS84pTUlVssorzcnRUXKtQOEGpSaXFhVnlqUqWZUUlabqKPlk5mUXK1mlJeYUp+ooOefkF6emQBTX6ij5pKaBDFaqZWJgSdTLTWFraNiyd9u3WzMMGdiS9JP1clO4+KBSLO/+b0aVYnwLEwEEAAD//w"
	got, err := decodeMemory(recorded)
	at := noon.UnixNano()
	last := tree{{path: "a.md", size: 3, modified: at}, {path: "b/c.md", size: 5, modified: at + 7}}
	if base := (tree{{path: "a.md", size: 2, modified: at - 9}}); err != nil || !slices.Equal(got.last, last) || !slices.Equal(got.base, base) {
		t.Errorf("%+v, %v", got, err)
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
