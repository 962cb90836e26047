package tree

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

// maxNames is the maximum number of changed files that a run receives by name.
const maxNames = 1000

// Tree is a list of the files in a folder, sorted by path and without duplicates.
type Tree []File

// File holds the size, the time and, if the content was read, the hash of a file.
type File struct {
	Path           string // relative, with slashes
	Size, Modified int64
	changed        int64 // not recorded and not part of the fingerprint
	// Sum is the first half of the SHA-256, or "" if the content was not read. It is not part of
	// the fingerprint.
	Sum string
}

// same reports whether a file is unchanged, or was rewritten with the same content.
func (l File) same(o File) bool {
	return l.Size == o.Size && (l.Modified == o.Modified || l.Sum == o.Sum && l.Sum != "")
}

// Sighting is a file that was found in a folder.
type Sighting struct {
	Path  string
	Stamp fsys.Stamp
}

// New returns a tree of the files below root.
func New(root string, files []Sighting) Tree {
	t := make(Tree, 0, len(files))
	for _, s := range files {
		if rel, ok := fsys.RelInside(root, s.Path); ok {
			t = append(t, File{Path: rel, Size: s.Stamp.Size, Modified: s.Stamp.Modified, changed: s.Stamp.Changed})
		}
	}

	return t.sorted()
}

// sorted sorts a tree in place by path and removes duplicate paths.
func (t Tree) sorted() Tree {
	slices.SortFunc(t, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return slices.CompactFunc(t, func(a, b File) bool { return a.Path == b.Path })
}

// Fingerprint returns a hash over paths, sizes and times.
func (t Tree) Fingerprint() string {
	h := sha256.New()
	var buf []byte
	for _, l := range t {
		// The length comes first, so that a name cannot look like a shorter name followed by a
		// size.
		buf = binary.AppendUvarint(buf[:0], uint64(len(l.Path)))
		buf = append(buf, l.Path...)
		buf = binary.BigEndian.AppendUint64(buf, uint64(l.Size))
		buf = binary.BigEndian.AppendUint64(buf, uint64(l.Modified))
		h.Write(buf)
	}

	return hex.EncodeToString(h.Sum(nil))
}

// diffTrees calls differs for each file that differs between two trees, in the order of paths. was
// is nil for an added file, and is is nil for a removed file.
func diffTrees(old, now Tree, differs func(was, is *File)) {
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

// Changes returns the differences between two trees for a run, the number of files that differ, and
// the time in nanoseconds at which the last of them was written or arrived.
func Changes(old, now Tree) (c *ledger.Changes, n int, last int64) {
	c = &ledger.Changes{Added: []string{}, Removed: []string{}, Modified: []string{}}
	diffTrees(old, now, func(was, is *File) {
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

// Selection is the set of files that a watch selects. It is recorded with a tree, because only
// trees of the same selection can be compared.
type Selection struct {
	Root             string
	Include, Exclude []string
	Recursive, Links bool
	Closed           []string
	Exact            bool
}

// Equal reports whether two selections are equal.
func (s Selection) Equal(o Selection) bool {
	return s.Root == o.Root && s.Recursive == o.Recursive && s.Links == o.Links && s.Exact == o.Exact &&
		slices.Equal(s.Include, o.Include) && slices.Equal(s.Exclude, o.Exclude) && slices.Equal(s.Closed, o.Closed)
}

// selects reports whether a file is in the selection.
func (s Selection) selects(rel string) bool {
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

// Snapshot is the recorded state of a folder, as stored in the ledger.
type Snapshot struct {
	Shape Selection
	Left  string // fingerprint after a failed run; no run starts while the folder has it
	// Last is the tree before the last run. Base is the tree before all changes that a run must
	// still receive. After a failed run Base is older than Last.
	Last, Base Tree
}

// ApplySelection adapts a snapshot to the selection of a changed watch. Newly selected files count
// as unchanged, unless process is set.
func (m *Snapshot) ApplySelection(next Selection, now Tree, process bool) {
	fit := func(t Tree) Tree {
		out := slices.DeleteFunc(slices.Clone(t), func(l File) bool { return !next.selects(l.Path) })
		if !process {
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

// Encode returns a snapshot as text for the ledger.
func (m *Snapshot) Encode() (string, error) {
	var out bytes.Buffer
	armour := base64.NewEncoder(base64.RawStdEncoding, &out)
	z := gzip.NewWriter(armour)
	err := errors.Join(gob.NewEncoder(z).Encode(m), z.Close(), armour.Close())
	return out.String(), err
}

// Decode decodes the text of Encode. It returns an error if the text is damaged.
func Decode(text string) (m Snapshot, err error) {
	z, err := gzip.NewReader(base64.NewDecoder(base64.RawStdEncoding, strings.NewReader(text)))
	if err != nil {
		return m, err
	}
	data, err := io.ReadAll(z) // verifies the checksum before decoding
	if err != nil {
		return m, err
	}
	return m, gob.NewDecoder(bytes.NewReader(data)).Decode(&m)
}

// CarrySums copies the hashes of files that have the same size and time in known.
func (t Tree) CarrySums(known Tree) {
	for i := range t {
		if l := known.Find(t[i].Path); l != nil && l.Size == t[i].Size && l.Modified == t[i].Modified {
			t[i].Sum = l.Sum
		}
	}
}

// Find returns the file at a path, or nil if there is none.
func (t Tree) Find(path string) *File {
	i, found := slices.BinarySearchFunc(t, path, func(l File, path string) int { return cmp.Compare(l.Path, path) })
	if !found {
		return nil
	}
	return &t[i]
}

// KeepUnreadable adds the recorded files that cannot be read now to a tree. They then count as
// unchanged instead of removed.
func KeepUnreadable(root string, cur, known Tree, unreadable map[string]error) Tree {
	for _, l := range known {
		path := fsys.JoinPath(root, l.Path)
		for dir := range unreadable {
			if _, in := fsys.RelInside(dir, path); in || dir == path {
				cur = append(cur, l)
				break
			}
		}
	}
	return cur.sorted()
}
