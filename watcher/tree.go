package watcher

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/ledger"
	"rouse/watcher/fsys"
	"rouse/watcher/match"
)

// maxNames is how many changed files a run is told by name.
const maxNames = 1000

// tree is what a folder looks like: its files by their paths, each once.
type tree []treeFile

// treeFile is a file as far as its stamp tells, and its content where that was read.
type treeFile struct {
	Path           string // relative, with slashes
	Size, Modified int64
	changed        int64  // not recorded, and not part of the fingerprint
	Sum            string // the first half of its SHA-256, "" if its content was not read; not part of the fingerprint
}

// same says that a file was not written since, or with the content that it had.
func (l treeFile) same(o treeFile) bool {
	return l.Size == o.Size && (l.Modified == o.Modified || l.Sum == o.Sum && l.Sum != "")
}

// newTree makes a tree of the files that a walk of root found.
func newTree(root string, files []sighting) tree {
	t := make(tree, 0, len(files))
	for _, s := range files {
		if rel, ok := fsys.RelInside(root, s.path); ok {
			t = append(t, treeFile{Path: rel, Size: s.stamp.Size, Modified: s.stamp.Modified, changed: s.stamp.Changed})
		}
	}

	return t.sorted()
}

// sorted sorts a tree in place by path, and keeps one file of each path.
func (t tree) sorted() tree {
	slices.SortFunc(t, func(a, b treeFile) int { return cmp.Compare(a.Path, b.Path) })
	return slices.CompactFunc(t, func(a, b treeFile) bool { return a.Path == b.Path })
}

// fingerprint is the fingerprint: a hash over paths, sizes and times (OSA-92).
func (t tree) fingerprint() string {
	h := sha256.New()
	var buf []byte
	for _, l := range t {
		// The length comes first: no name can then pass for a shorter one with a size behind it.
		buf = binary.AppendUvarint(buf[:0], uint64(len(l.Path)))
		buf = append(buf, l.Path...)
		buf = binary.BigEndian.AppendUint64(buf, uint64(l.Size))
		buf = binary.BigEndian.AppendUint64(buf, uint64(l.Modified))
		h.Write(buf)
	}

	return hex.EncodeToString(h.Sum(nil))
}

// diffTrees calls differs for each file that differs between two trees, in the order of paths:
// was is nil for an added file, is for a removed one.
func diffTrees(old, now tree, differs func(was, is *treeFile)) {
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].Path < now[0].Path:
			differs(&old[0], nil)
			old = old[1:]
		case len(old) == 0 || now[0].Path < old[0].Path:
			differs(nil, &now[0])
			now = now[1:]
		default:
			if !old[0].same(now[0]) {
				differs(&old[0], &now[0])
			}
			old, now = old[1:], now[1:]
		}
	}
}

// changesBetween is what a run is told about the difference of two trees, how many files differ,
// and when the last of them was written or came, as far as the file system tells.
func changesBetween(old, now tree) (c *ledger.Changes, n int, last int64) {
	c = &ledger.Changes{Added: []string{}, Removed: []string{}, Modified: []string{}}
	diffTrees(old, now, func(was, is *treeFile) {
		if is != nil {
			last = max(last, cmp.Or(is.changed, is.Modified))
		}

		if n++; n > maxNames {
			c.More++
			return
		}

		switch {
		case was == nil:
			c.Added = append(c.Added, is.Path)
		case is == nil:
			c.Removed = append(c.Removed, was.Path)
		default:
			c.Modified = append(c.Modified, is.Path)
		}
	})

	return c, n, last
}

// shape is which files a watch selects. It is recorded with a tree, to know what the tree is of.
type shape struct {
	Root             string
	Include, Exclude []string
	Recursive, Links bool
	Closed           []string
	Exact            bool
}

func (f *folder) shape() shape {
	return shape{f.root, f.Include, f.Exclude, f.Recursive, f.FollowSymlinks, f.nestedWatches, f.ExactCase}
}

func (s shape) equal(o shape) bool {
	return s.Root == o.Root && s.Recursive == o.Recursive && s.Links == o.Links && s.Exact == o.Exact &&
		slices.Equal(s.Include, o.Include) && slices.Equal(s.Exclude, o.Exclude) && slices.Equal(s.Closed, o.Closed)
}

// selects says whether a file is one of those.
func (s shape) selects(rel string) bool {
	w := match.Filter{Include: s.Include, Exclude: s.Exclude, ExactCase: s.Exact}
	if !w.Selects(rel) || !s.Recursive && strings.Contains(rel, "/") {
		return false
	}

	path := filepath.Join(s.Root, filepath.FromSlash(rel))
	for _, dir := range s.Closed {
		if _, in := fsys.RelInside(dir, path); in {
			return false
		}
	}
	return true
}

// memory is what a folder looked like, as recorded in the ledger.
type memory struct {
	Shape shape
	Left  string // its fingerprint after a failed run: as long as it has this one, nothing starts
	// Last is from before the last run; Base from before all changes that a run must still be
	// told about, which is older than Last after a failed run.
	Last, Base tree
}

// refit fits a memory to a watch that selects other files than before. The ones it did not
// select count as unchanged, unless existing files are to be processed.
func (m *memory) refit(f *folder, now tree) {
	next := f.shape()
	fit := func(t tree) tree {
		out := slices.DeleteFunc(slices.Clone(t), func(l treeFile) bool { return !next.selects(l.Path) })
		if f.Existing == ExistingIgnore {
			for _, l := range now {
				if !m.Shape.selects(l.Path) {
					out = append(out, l)
				}
			}
		}
		return out.sorted()
	}

	m.Last, m.Base, m.Left = fit(m.Last), fit(m.Base), ""
	m.Shape = next
}

// encode returns a memory as text for the ledger.
func (m *memory) encode() (string, error) {
	var out bytes.Buffer
	armour := base64.NewEncoder(base64.RawStdEncoding, &out)
	z := gzip.NewWriter(armour)
	err := errors.Join(gob.NewEncoder(z).Encode(m), z.Close(), armour.Close())
	return out.String(), err
}

// decodeMemory reads the text that encode wrote.
func decodeMemory(text string) (m memory, err error) {
	z, err := gzip.NewReader(base64.NewDecoder(base64.RawStdEncoding, strings.NewReader(text)))
	if err != nil {
		return m, err
	}
	data, err := io.ReadAll(z) // checks the checksum before anything is decoded
	if err != nil {
		return m, err
	}
	return m, gob.NewDecoder(bytes.NewReader(data)).Decode(&m)
}
