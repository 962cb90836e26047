package file

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/atomicfile"
	"rouse/internal/fspath"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// What is kept of folders before a program that may change anything in them. Of what is beyond it the record
// says that it cannot be undone.
const (
	maxBeforeEntries = 20_000   // files, links and folders that are known at all
	maxBeforeBytes   = 64 << 20 // contents; of one file maxRaw at most
	// maxAfterBytes are read afterwards of files that are new or seem changed: a program may leave more than anybody wants to wait for.
	maxAfterBytes = 512 << 20
)

// notKept stands in place of the hash of a content that was not kept.
const notKept = "not kept"

const (
	beforeIndex    = "before.json"
	beforeContents = "contents"
)

// Before is what the folders of a run held before a program that changes files as it likes: the names of all
// files, and the contents of those that are not too large. It lies in a folder of the host's, so that
// what changed can be found out after a crash, too.
type Before struct {
	dir string
	beforeRecord
}

// beforeRecord is what the folder says of itself.
type beforeRecord struct {
	Run     int64                   `json:"run"`
	Attempt int                     `json:"attempt"`
	Agent   string                  `json:"agent"`
	Key     string                  `json:"key"`            // of the call
	Roots   []string                `json:"roots"`          // that the program may write
	Skip    []string                `json:"skip,omitempty"` // absolute: what it cannot reach in them
	Entries map[string]*beforeEntry `json:"entries"`        // by absolute path
	More    bool                    `json:"more,omitempty"` // there were more than are known
}

// beforeEntry is a file, a folder or a link as it was.
type beforeEntry struct {
	Kind    string `json:"kind,omitempty"` // "" is a file
	Mode    uint32 `json:"mode,omitempty"`
	Size    int64  `json:"size,omitempty"`
	ModTime int64  `json:"mod_time,omitempty"` // ns since 1970
	Hash    string `json:"hash,omitempty"`     // "" where the content was not kept
	Offset  int64  `json:"offset,omitempty"`   // in the contents
	Why     string `json:"why,omitempty"`      // it was not kept
	Target  string `json:"target,omitempty"`   // of a link

	root string
}

const (
	kindFolder = "folder"
	kindLink   = "link"
)

// TakeBefore keeps what lies where a run may write. No link is followed. dir must not exist; Settle and Discard
// remove it.
func TakeBefore(ctx context.Context, roots *tool.Roots, in tool.Invocation, dir string) (*Before, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("what the folders of run %d hold before its program cannot be kept: %w", in.Run, err)
	}

	b := &Before{dir, beforeRecord{Run: in.Run, Attempt: in.Attempt, Agent: in.Agent, Key: in.Key, Skip: roots.ProgramMasks()}}
	for _, place := range roots.Writable() {
		b.Roots = append(b.Roots, place.Name)
	}

	var err error
	if b.Entries, b.More, err = b.list(ctx, roots.Boundary()); err == nil {
		err = b.keep(ctx, roots.Boundary())
	}
	if err == nil {
		var record []byte
		if record, err = json.Marshal(b.beforeRecord); err == nil {
			err = atomicfile.Write(filepath.Join(dir, beforeIndex), record, 0o600)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("what the folders of run %d hold before its program cannot be kept: %w", in.Run, err), os.RemoveAll(dir))
	}

	return b, nil
}

// list names what lies in the roots, up to as much as is known.
func (b *Before) list(ctx context.Context, boundary nofollow.Boundary) (entries map[string]*beforeEntry, more bool, err error) {
	entries = map[string]*beforeEntry{}
	for _, path := range b.Roots {
		root, err := boundary.OpenRoot(path)
		if err != nil {
			continue // a single file, or a folder that is not there
		}

		all, err := listRoot(ctx, root, b.Skip, maxBeforeEntries-len(entries), entries)
		if err = errors.Join(err, root.Close()); err != nil {
			return nil, false, err
		}
		more = more || !all
	}
	return entries, more, nil
}

// listRoot adds what lies in one root; all is false where there is more than most.
func listRoot(ctx context.Context, root *os.Root, skip []string, most int, into map[string]*beforeEntry) (all bool, err error) {
	all = true
	err = fs.WalkDir(root.FS(), ".", func(rel string, d fs.DirEntry, err error) error {
		path := filepath.Join(root.Name(), filepath.FromSlash(rel))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return nil //nolint:nilerr // what cannot be read the program cannot either, or it has just gone
		case rel == ".":
			return nil
		case d.IsDir() && (strings.EqualFold(d.Name(), ".git") || slices.Contains(skip, path)): // which the program cannot change
			return fs.SkipDir
		case slices.Contains(skip, path) || into[path] != nil:
			return nil
		case most <= 0:
			all = false
			return fs.SkipAll
		}

		most--
		if one := entryOf(root, rel, d); one != nil {
			into[path] = one
		}
		return nil
	})
	return all, err
}

// entryOf describes one name, nil where nothing is left of it.
func entryOf(root *os.Root, rel string, d fs.DirEntry) *beforeEntry {
	info, err := d.Info()
	if err != nil {
		return nil
	}

	one := &beforeEntry{Mode: uint32(info.Mode().Perm()), Size: info.Size(), ModTime: info.ModTime().UnixNano(), root: root.Name()}
	switch {
	case info.IsDir():
		return &beforeEntry{Kind: kindFolder, root: root.Name()}
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := root.Readlink(rel)
		if err != nil {
			return nil
		}
		return &beforeEntry{Kind: kindLink, Target: target, root: root.Name()}
	case !info.Mode().IsRegular(): // a pipe, a device
		return nil
	case tool.IsSecretPath(rel):
		one.Why = "its name is one of those that hold secrets, which are not kept"
	case info.Size() > maxRaw:
		one.Why = fmt.Sprintf("it had more than the %d MiB that are kept of a file", maxRaw>>20)
	}
	return one
}

// keep copies the contents of files, the small ones first, so that as many as possible are kept.
func (b *Before) keep(ctx context.Context, boundary nofollow.Boundary) error {
	contents, err := os.OpenFile(filepath.Join(b.dir, beforeContents), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer contents.Close()

	paths := make([]string, 0, len(b.Entries))
	for path, e := range b.Entries {
		if e.Kind == "" && e.Why == "" {
			paths = append(paths, path)
		}
	}
	slices.SortFunc(paths, func(x, y string) int {
		return cmp.Or(cmp.Compare(b.Entries[x].Size, b.Entries[y].Size), strings.Compare(x, y))
	})

	var offset int64
	for _, path := range paths {
		e := b.Entries[path]
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if offset+e.Size > maxBeforeBytes {
			e.Why = fmt.Sprintf("the folders hold more than the %d MiB that are kept before a program", maxBeforeBytes>>20)
			continue
		}

		content, err := readWithin(boundary, e.root, path)
		if err != nil {
			e.Why = "it could not be read: " + err.Error()
			continue
		}
		if _, err := contents.Write(content); err != nil {
			return err
		}
		e.Hash, e.Size, e.Offset = hashOf(string(content)), int64(len(content)), offset
		offset += e.Size
	}

	return contents.Sync()
}

// readWithin reads a file below a root, without following any link, and no more of it than is kept.
func readWithin(boundary nofollow.Boundary, root, path string) ([]byte, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	top, err := boundary.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer top.Close()

	in, err := nofollow.OpenBelow(top, filepath.Dir(rel))
	if err != nil {
		return nil, err
	}
	defer in.Close()

	name := filepath.Base(rel)
	info, err := in.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no file any more")
	}

	f, err := in.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe may be in its place by now
	if err != nil {
		return nil, err
	}
	defer f.Close()

	if opened, err := f.Stat(); err != nil || !os.SameFile(opened, info) {
		return nil, errors.Join(errors.New("it was replaced while it was opened"), err)
	}

	var content bytes.Buffer
	content.Grow(int(min(info.Size(), maxRaw)) + bytes.MinRead)
	if _, err = content.ReadFrom(io.LimitReader(f, maxRaw+1)); err == nil && content.Len() > maxRaw {
		err = fmt.Errorf("it has more than the %d MiB that are kept of a file", maxRaw>>20)
	}
	return content.Bytes(), err
}

// Settled is what a program changed.
type Settled struct {
	Files   int    // that were made, changed or removed; folders are not counted
	Kept    int    // those of them that can be undone
	Why     string // why some cannot, in a sentence; "" when all can
	changed []ledger.FileOp
}

// Settle records what has changed since, with what was there before, and removes what was kept. roots hear of the files
// that were written, as of all that a run writes; nil after a crash. An error is the host's.
func (b *Before) Settle(ctx context.Context, log Log, boundary nofollow.Boundary, roots *tool.Roots) (out Settled, err error) {
	now, more, err := b.list(ctx, boundary)
	if err != nil {
		return out, err
	}

	ops, err := b.changes(ctx, boundary, now)
	if err != nil {
		return out, err
	}
	if (b.More || more) && len(b.Roots) > 0 { // said where an undo looks for it
		root := b.Roots[0]
		ops = append(ops, ledger.FileOp{Type: ledger.FileProgram, Root: root, Path: root, BeforeHash: notKept, AfterHash: notKept,
			NoUndoReason: fmt.Sprintf("there are more than %d files, and what the program did to those beyond is not known", maxBeforeEntries)})
	}

	saved, err := log.SavedFileBytes(ctx, b.Run)
	if err != nil {
		return out, err
	}
	for _, op := range ops {
		var before []byte
		if before, saved, err = b.fill(&op, saved); err != nil {
			return out, err
		}
		if op, err = log.AddFileOp(ctx, ledger.Attempt{Run: b.Run, Number: b.Attempt}, op, before); err != nil {
			return out, err
		}
		out.add(op)
	}

	return out, errors.Join(announce(ctx, roots, out.changed), b.Discard())
}

// fill completes the record of a change with whose it is, and with the content before.
func (b *Before) fill(op *ledger.FileOp, saved int64) ([]byte, int64, error) {
	op.Agent, op.Batch = b.Agent, b.Key
	e := b.Entries[op.Path]
	if op.NoUndoReason != "" || e == nil || e.Hash == "" || op.BeforeHash == "" {
		return nil, saved, nil
	}
	if saved += e.Size; saved > maxUndoBytes {
		op.NoUndoReason = fmt.Sprintf("this run has changed files of more than %d MiB, and no more is kept of them", maxUndoBytes>>20)
		return nil, saved, nil
	}

	contents, err := os.Open(filepath.Join(b.dir, beforeContents))
	if err != nil {
		return nil, saved, err
	}
	defer contents.Close()

	content := make([]byte, e.Size)
	if _, err := contents.ReadAt(content, e.Offset); err != nil {
		return nil, saved, fmt.Errorf("what %s held before is damaged: %w", op.Path, err)
	}
	return content, saved, nil
}

// changes are in an order in which their undo, which goes backwards, finds folders empty that it removes.
func (b *Before) changes(ctx context.Context, boundary nofollow.Boundary, now map[string]*beforeEntry) (ops []ledger.FileOp, err error) {
	var paths []string
	for path := range now {
		paths = append(paths, path)
	}
	for path := range b.Entries {
		if now[path] == nil {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths) // a folder comes before what lies in it

	left := int64(maxAfterBytes)
	for _, path := range paths {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if op := change(boundary, path, b.Entries[path], now[path], &left); op != nil {
			ops = append(ops, *op)
		}
	}
	return ops, nil
}

// change is what became of one path, nil where nothing did. left is how much may still be read.
func change(boundary nofollow.Boundary, path string, was, is *beforeEntry, left *int64) *ledger.FileOp {
	op := &ledger.FileOp{Type: ledger.FileProgram, Path: path}
	switch {
	case was != nil && is != nil && was.Kind == is.Kind && was.same(is):
		return nil
	case was == nil && is.Kind == kindFolder:
		op.Root, op.Type, op.AfterHash = is.root, ledger.FileDirCreate, folderHash
		return op
	case was != nil && was.Kind == kindFolder && is == nil: // it is made again for the files that were in it
		return nil
	case was != nil && was.Kind != "" || is != nil && is.Kind != "":
		op.Root, op.BeforeHash, op.AfterHash, op.NoUndoReason = rootOf(was, is), notKept, notKept, "it is a link, or was one, or a folder took its place; only files are kept"
		return op
	}

	op.Root = rootOf(was, is)
	if was != nil {
		op.Mode, op.Size, op.BeforeHash, op.NoUndoReason = was.Mode, was.Size, was.Hash, was.Why
		if was.Hash == "" {
			op.BeforeHash = notKept
		}
	}
	if is == nil {
		return op
	}

	if *left -= min(is.Size, maxRaw); *left < 0 {
		op.AfterHash = notKept
		op.NoUndoReason = cmp.Or(op.NoUndoReason, fmt.Sprintf("the program left more than %s in new and changed files, and no more is read of them", text.Size(maxAfterBytes)))
		return op
	}
	content, err := readWithin(boundary, is.root, path)
	switch {
	case err != nil:
		op.AfterHash = notKept
		op.NoUndoReason = cmp.Or(op.NoUndoReason, err.Error())
	case was != nil && was.Hash == hashOf(string(content)): // its time is another one, and nothing else
		return nil
	default:
		op.AfterHash = hashOf(string(content))
	}
	if tool.IsSecretPath(relative(is.root, path)) { // which no undo opens
		op.NoUndoReason = cmp.Or(op.NoUndoReason, "its name is one of those that hold secrets, which no undo changes")
	}
	return op
}

// same reports whether nothing tells two states of a path apart without reading it. The time of a file says nothing
// where its content is known: a program can set it.
func (e *beforeEntry) same(o *beforeEntry) bool {
	switch e.Kind {
	case kindFolder:
		return true
	case kindLink:
		return e.Target == o.Target
	}
	return e.Hash == "" && e.Size == o.Size && e.ModTime == o.ModTime
}

func rootOf(was, is *beforeEntry) string {
	if is != nil {
		return is.root
	}
	return was.root
}

func relative(root, path string) string {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return path
	}
	return rel
}

// add counts one change.
func (s *Settled) add(op ledger.FileOp) {
	s.changed = append(s.changed, op)
	if op.Type == ledger.FileDirCreate {
		return
	}

	s.Files++
	if op.NoUndoReason == "" {
		s.Kept++
		return
	}
	if s.Why == "" {
		s.Why = fmt.Sprintf("%s: %s", text.Visible(op.Path), op.NoUndoReason)
	}
}

// announce tells roots of the files that are there now, so that the job's own watch does not take them for somebody else's.
func announce(ctx context.Context, roots *tool.Roots, ops []ledger.FileOp) error {
	if roots == nil {
		return nil
	}
	return (&RecordedPlan{roots: roots, ops: slices.DeleteFunc(slices.Clone(ops), func(op ledger.FileOp) bool { return op.NoUndoReason != "" })}).Announce(ctx)
}

// Discard removes what was kept: the program did not start.
func (b *Before) Discard() error { return os.RemoveAll(b.dir) }

// RecoverBefore records what the programs of a process that died had changed until then, by what it kept in the
// folders of dir. Their attempts must not have been ended yet.
func RecoverBefore(ctx context.Context, log Log, boundary nofollow.Boundary, dir string) error {
	left, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	var all error
	for _, e := range left {
		b := &Before{dir: filepath.Join(dir, e.Name())}
		raw, err := os.ReadFile(filepath.Join(b.dir, beforeIndex))
		if err != nil || json.Unmarshal(raw, &b.beforeRecord) != nil { // it was being written: nothing had started
			all = errors.Join(all, b.Discard())
			continue
		}

		b.findRoots(boundary)
		if _, err := b.Settle(ctx, log, boundary, nil); err != nil && !errors.Is(err, ledger.ErrFenced) && !errors.Is(err, ledger.ErrNotFound) {
			all = errors.Join(all, fmt.Errorf("what the program of run %d had changed when its process died is not on record: %w; what was there before lies in %s until the next start", b.Run, err, b.dir))
			continue
		}
		all = errors.Join(all, b.Discard())
	}
	return all
}

// findRoots says again of each entry which root it lies in. A root that is behind a link by now is another folder.
func (b *Before) findRoots(boundary nofollow.Boundary) {
	b.Roots = slices.DeleteFunc(b.Roots, func(root string) bool {
		at, err := boundary.Resolve(root)
		return err != nil || at != root
	})
	for path, e := range b.Entries {
		for _, root := range b.Roots {
			if len(root) > len(e.root) && fspath.Within(path, root) {
				e.root = root
			}
		}
		if e.root == "" {
			delete(b.Entries, path)
		}
	}
}

// BeforeName is a name for the folder of a call's Before.
func BeforeName(run int64, attempt int, key string) string {
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%d-%d-%s", run, attempt, hex.EncodeToString(sum[:4]))
}
