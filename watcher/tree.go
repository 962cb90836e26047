package watcher

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agentdb/ledger"
)

// maxNames is how many changed files a run is told by name.
const maxNames = 1000

// tree is what a folder looks like: its files by their paths, each once.
type tree []treeFile

// treeFile is a file as far as its stamp tells, and its content where that was read.
type treeFile struct {
	path           string // relative, with slashes
	size, modified int64
	changed        int64      // not recorded, and not part of the fingerprint
	sum            contentSum // not part of the fingerprint
}

// same says that a file was not written since, or with the content that it had.
func (l treeFile) same(o treeFile) bool {
	return l.size == o.size && (l.modified == o.modified || l.sum == o.sum && l.sum != contentSum{})
}

// newTree makes a tree of the files that a walk of root found.
func newTree(root string, files []sighting) tree {
	t := make(tree, 0, len(files))
	for _, s := range files {
		if rel, ok := relInside(root, s.path); ok {
			t = append(t, treeFile{path: rel, size: s.stamp.size, modified: s.stamp.modified, changed: s.stamp.changed})
		}
	}

	slices.SortFunc(t, func(a, b treeFile) int { return cmp.Compare(a.path, b.path) })
	return slices.CompactFunc(t, func(a, b treeFile) bool { return a.path == b.path })
}

// fingerprint is the fingerprint: a hash over paths, sizes and times (OSA-92).
func (t tree) fingerprint() string {
	h := sha256.New()
	var buf []byte
	for _, l := range t {
		// The length comes first: no name can then pass for a shorter one with a size behind it.
		buf = binary.AppendUvarint(buf[:0], uint64(len(l.path)))
		buf = append(buf, l.path...)
		buf = binary.BigEndian.AppendUint64(buf, uint64(l.size))
		buf = binary.BigEndian.AppendUint64(buf, uint64(l.modified))
		h.Write(buf)
	}

	return hex.EncodeToString(h.Sum(nil))
}

// diffTrees calls differs for each file that differs between two trees, in the order of paths:
// was is nil for an added file, is for a removed one.
func diffTrees(old, now tree, differs func(was, is *treeFile)) {
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].path < now[0].path:
			differs(&old[0], nil)
			old = old[1:]
		case len(old) == 0 || now[0].path < old[0].path:
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
			last = max(last, cmp.Or(is.changed, is.modified))
		}

		if n++; n > maxNames {
			c.More++
			return
		}

		switch {
		case was == nil:
			c.Added = append(c.Added, is.path)
		case is == nil:
			c.Removed = append(c.Removed, was.path)
		default:
			c.Modified = append(c.Modified, is.path)
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
	Exact            bool `json:",omitempty"`
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
	w := Watch{Include: s.Include, Exclude: s.Exclude, ExactCase: s.Exact}
	if !w.selects(rel) || !s.Recursive && strings.Contains(rel, "/") {
		return false
	}

	path := filepath.Join(s.Root, filepath.FromSlash(rel))
	for _, dir := range s.Closed {
		if _, in := relInside(dir, path); in {
			return false
		}
	}
	return true
}

// memory is what a folder looked like, as recorded in the ledger.
type memory struct {
	Shape shape
	Left  string // its fingerprint after a failed run: as long as it has this one, nothing starts
	// last is from before the last run; base from before all changes that a run must still be
	// told about, which is older than last after a failed run.
	last, base tree
}

// refit fits a memory to a watch that selects other files than before. The ones it did not
// select count as unchanged, unless existing files are to be processed.
func (m *memory) refit(f *folder, now tree) {
	next := f.shape()
	fit := func(t tree) tree {
		out := slices.DeleteFunc(slices.Clone(t), func(l treeFile) bool { return !next.selects(l.path) })
		if f.Existing == ExistingIgnore {
			for _, l := range now {
				if !m.Shape.selects(l.path) {
					out = append(out, l)
				}
			}
		}

		slices.SortFunc(out, func(a, b treeFile) int { return cmp.Compare(a.path, b.path) })
		return slices.CompactFunc(out, func(a, b treeFile) bool { return a.path == b.path })
	}

	m.last, m.base, m.Left = fit(m.last), fit(m.base), ""
	m.Shape = next
}

const (
	memoryFormat        = "2 " // version of the recorded format
	withSum, withoutSum = 1, 0
)

// encode is a memory as text for the ledger, compressed, with base as its difference from last.
func (m *memory) encode() (string, error) {
	var undo tree
	diffTrees(m.last, m.base, func(was, is *treeFile) {
		if is == nil {
			is = &treeFile{path: was.path, size: -1} // no file has this size: it is not in base
		}
		undo = append(undo, *is)
	})

	head, err := json.Marshal(m)
	if err != nil {
		return "", err
	}

	var out bytes.Buffer
	out.WriteString(memoryFormat)
	armour := base64.NewEncoder(base64.RawStdEncoding, &out)
	z, err := flate.NewWriter(armour, flate.DefaultCompression)
	if err != nil {
		return "", err
	}

	buf := binary.AppendUvarint(nil, uint64(len(head)))
	buf = append(buf, head...)
	for _, t := range []tree{m.last, undo} {
		buf = t.appendTo(buf)
	}

	_, err = z.Write(buf)
	err = errors.Join(err, z.Close(), armour.Close())
	return out.String(), err
}

// appendTo writes a tree. Of each path and time it writes only the difference from the one
// before, which is short where many files are in one folder.
func (t tree) appendTo(buf []byte) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(t)))
	var before treeFile
	for _, l := range t {
		same := 0
		for same < len(l.path) && same < len(before.path) && l.path[same] == before.path[same] {
			same++
		}

		buf = binary.AppendUvarint(buf, uint64(same))
		buf = binary.AppendUvarint(buf, uint64(len(l.path)-same))
		buf = append(buf, l.path[same:]...)
		buf = binary.AppendVarint(buf, l.size)
		buf = binary.AppendVarint(buf, l.modified-before.modified)
		if l.sum == (contentSum{}) {
			buf = append(buf, withoutSum)
		} else {
			buf = append(append(buf, withSum), l.sum[:]...)
		}
		before = l
	}

	return buf
}

// decodeMemory reads what text wrote.
func decodeMemory(text string) (m memory, err error) {
	body, ok := strings.CutPrefix(text, memoryFormat)
	if !ok {
		return m, errors.New("its format is not known to this version")
	}

	r := bufio.NewReader(flate.NewReader(base64.NewDecoder(base64.RawStdEncoding, strings.NewReader(body))))
	head, err := readBytes(r, 0, "")
	if err == nil {
		err = json.Unmarshal(head, &m)
	}
	if err != nil {
		return m, err
	}

	var undo tree
	for _, t := range []*tree{&m.last, &undo} {
		if *t, err = readTree(r); err != nil {
			return m, err
		}
	}

	m.base = m.last
	if len(undo) > 0 {
		m.base = applyDiff(m.last, undo)
	}

	return m, nil
}

// applyDiff is base, made of last and the difference that encode wrote.
func applyDiff(last, undo tree) tree {
	out := make(tree, 0, len(last))
	for len(last) > 0 || len(undo) > 0 {
		if len(undo) == 0 || len(last) > 0 && last[0].path < undo[0].path {
			out, last = append(out, last[0]), last[1:]
			continue
		}

		if len(last) > 0 && last[0].path == undo[0].path {
			last = last[1:]
		}

		if undo[0].size >= 0 {
			out = append(out, undo[0])
		}

		undo = undo[1:]
	}

	return out
}

// readBytes reads a length and that many bytes, which follow the first same bytes of before.
func readBytes(r *bufio.Reader, same uint64, before string) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	// A damaged length must not allocate gigabytes.
	if n > 1<<20 || same > uint64(len(before)) {
		return nil, errors.New("it is damaged")
	}

	out := make([]byte, same+n)
	copy(out, before[:same])
	_, err = io.ReadFull(r, out[same:])
	return out, err
}

func readTree(r *bufio.Reader) (tree, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}

	t := make(tree, 0, min(n, 1<<20))
	var before treeFile
	for range n {
		same, err := binary.ReadUvarint(r)
		if err != nil {
			return nil, err
		}

		path, err := readBytes(r, same, before.path)
		if err != nil {
			return nil, err
		}

		size, err1 := binary.ReadVarint(r)
		modified, err2 := binary.ReadVarint(r)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("of %s: %w", path, err)
		}

		before = treeFile{path: string(path), size: size, modified: before.modified + modified}
		if before.sum, err = readSum(r); err != nil {
			return nil, fmt.Errorf("of %s: %w", path, err)
		}
		t = append(t, before)
	}

	return t, nil
}

// readSum reads the sum of a file, if it has one.
func readSum(r *bufio.Reader) (sum contentSum, err error) {
	kind, err := r.ReadByte()
	if err == nil && kind == withSum {
		_, err = io.ReadFull(r, sum[:])
	}
	return sum, err
}
