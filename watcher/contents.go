package watcher

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"

	"rouse/watcher/fsys"
	"rouse/watcher/tree"
)

// Limits for reading file contents before a run. A file beyond them counts as changed whenever it
// is written.
const (
	maxSummedFile = 16 << 20 // bytes
	maxSummed     = 64 << 20 // bytes of all files read for a run
	maxSums       = 10_000   // files of a folder
)

// hashRewritten reads the files that were rewritten with the same size, because a program that
// writes the same bytes again has not changed the file.
func (p *place) hashRewritten(ctx context.Context, cur, known tree.Tree) {
	cur.CarrySums(known)
	p.readSums(ctx, cur, func(l tree.File) bool {
		before := known.Find(l.Path)
		return before != nil && before.Size == l.Size && before.Sum != ""
	})
}

// learnContents reads the files with unknown contents, before a run that may rewrite them. It reads
// the newest files first, because they are the most likely to change.
func (p *place) learnContents(ctx context.Context, cur tree.Tree) {
	p.readSums(ctx, cur, func(tree.File) bool { return true })
}

// readSums reads the wanted files without a checksum, within the limits. A file that cannot be read
// or changes in the meantime gets no checksum.
func (p *place) readSums(ctx context.Context, cur tree.Tree, wanted func(tree.File) bool) {
	var files []*tree.File
	known := 0
	for i := range cur {
		switch l := &cur[i]; {
		case l.Sum != "":
			known++
		case l.Size <= maxSummedFile && wanted(*l):
			files = append(files, l)
		}
	}
	if len(files) == 0 {
		return
	}

	root, err := p.openRoot()
	if err != nil {
		return
	}
	defer root.Close()

	slices.SortStableFunc(files, func(a, b *tree.File) int { return cmp.Compare(b.Modified, a.Modified) })
	files = files[:max(0, min(len(files), maxSums-known))]
	for room := int64(maxSummed); len(files) > 0 && room >= files[0].Size && ctx.Err() == nil; files = files[1:] {
		room -= files[0].Size
		files[0].Sum = p.sumOf(ctx, root, *files[0])
	}
}

// sumOf returns the checksum of a file, or "" if it has changed since the scan or cannot be read.
func (p *place) sumOf(ctx context.Context, root *os.Root, l tree.File) string {
	file := fsys.Handle{Root: root, Name: filepath.FromSlash(l.Path)}
	info, err := file.Lstat()
	if err != nil {
		return ""
	}

	st := fsys.StampOf(info)
	if st.Size != l.Size || st.Modified != l.Modified {
		return ""
	}

	hash, err := p.w.hashes.Of(ctx, file, st)
	if err != nil {
		return ""
	}
	return hash[:len(hash)/2]
}
