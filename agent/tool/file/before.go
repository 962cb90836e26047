package file

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rouse/agent/tool"
	"rouse/internal/atomicfile"
	"rouse/internal/fspath"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// Limits of the state that is stored before a program runs. Changes beyond a limit are recorded as
// changes that cannot be undone.
const (
	maxBeforeEntries = 20_000    // files, links and folders
	maxBeforeBytes   = 64 << 20  // file contents in total; maxRaw for each file
	maxAfterBytes    = 512 << 20 // read after the program, of new and possibly changed files
)

// notKept is recorded instead of a hash if the content was not stored.
const notKept = "not kept"

const (
	beforeIndex    = "before.json"
	beforeContents = "contents"
)

// Before holds the state of a run's folders before a program runs. It has the names of all files,
// and the contents of files up to a size limit. It is stored in a folder on the host, so that the
// changes can be found after a crash.
type Before struct {
	dir string
	beforeRecord
}

// beforeRecord is the index of a Before, as stored on disk.
type beforeRecord struct {
	Run     int64                   `json:"run"`
	Attempt int                     `json:"attempt"`
	Agent   string                  `json:"agent"`
	Key     string                  `json:"key"`            // key of the call
	Roots   []string                `json:"roots"`          // folders that the program may write
	Skip    []string                `json:"skip,omitempty"` // absolute paths in the roots that the program cannot reach
	Entries map[string]*beforeEntry `json:"entries"`        // by absolute path
	More    bool                    `json:"more,omitempty"` // true if entries beyond the limit are missing
}

// beforeEntry is the state of a file, a folder or a link before the program.
type beforeEntry struct {
	Kind    string `json:"kind,omitempty"` // "" for a file
	Mode    uint32 `json:"mode,omitempty"`
	Size    int64  `json:"size,omitempty"`
	ModTime int64  `json:"mod_time,omitempty"` // Unix time in nanoseconds
	Hash    string `json:"hash,omitempty"`     // "" if the content was not stored
	Offset  int64  `json:"offset,omitempty"`   // in the contents file
	Why     string `json:"why,omitempty"`      // reason why the content was not stored
	Target  string `json:"target,omitempty"`   // target of a link

	root string
}

const (
	kindFolder = "folder"
	kindLink   = "link"
)

// TakeBefore stores the content of the folders that a run may write. It does not follow links. dir
// must not exist. Settle and Discard remove it.
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

// list lists the entries of the roots, up to the limit.
func (b *Before) list(ctx context.Context, boundary nofollow.UntrustedDirs) (entries map[string]*beforeEntry, more bool, err error) {
	entries = map[string]*beforeEntry{}
	for _, path := range b.Roots {
		root, err := boundary.OpenRoot(path)
		if err != nil {
			continue // a single file, or a missing folder
		}

		all, err := listRoot(ctx, root, b.Skip, maxBeforeEntries-len(entries), entries)
		if err = errors.Join(err, root.Close()); err != nil {
			return nil, false, err
		}
		more = more || !all
	}
	return entries, more, nil
}

// listRoot adds the entries of one root to into. all is false if there are more than most.
func listRoot(ctx context.Context, root *os.Root, skip []string, most int, into map[string]*beforeEntry) (all bool, err error) {
	all = true
	err = fs.WalkDir(root.FS(), ".", func(rel string, d fs.DirEntry, err error) error {
		path := filepath.Join(root.Name(), filepath.FromSlash(rel))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return nil //nolint:nilerr // the program cannot read the entry either, or the entry was just removed
		case rel == ".":
			return nil
		case d.IsDir() && (strings.EqualFold(d.Name(), ".git") || slices.Contains(skip, path)): // the program cannot change these
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

// entryOf describes an entry. It returns nil if the entry is gone or is a pipe or a device.
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

// keep stores the contents of the files, smallest first, to store as many files as possible.
func (b *Before) keep(ctx context.Context, boundary nofollow.UntrustedDirs) error {
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

// readWithin reads up to maxRaw bytes of a file below a root. It does not follow links.
func readWithin(boundary nofollow.UntrustedDirs, root, path string) ([]byte, error) {
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

	f, err := in.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe may have replaced the file
	if err != nil {
		return nil, err
	}
	defer f.Close()

	if opened, err := f.Stat(); err != nil || !os.SameFile(opened, info) {
		return nil, errors.Join(errors.New("it was replaced while it was opened"), err)
	}

	content, err := io.ReadAll(io.LimitReader(f, maxRaw+1))
	if err == nil && len(content) > maxRaw {
		err = fmt.Errorf("it has more than the %d MiB that are kept of a file", maxRaw>>20)
	}
	return content, err
}

// Settled counts the changes that a program made.
type Settled struct {
	Files int    // created, changed and removed files, without folders
	Kept  int    // number of Files that can be undone
	Why   string // reason why some cannot be undone; "" if all can
}

// Settle records the changes since TakeBefore, with the content before, and removes the stored
// state. It announces the written files to roots. roots is nil after a crash. An error is a fault
// of the host.
func (b *Before) Settle(ctx context.Context, log *fileop.FileOps, boundary nofollow.UntrustedDirs, roots *tool.Roots) (out Settled, err error) {
	now, more, err := b.list(ctx, boundary)
	if err != nil {
		return out, err
	}

	ops, err := b.changes(ctx, boundary, now)
	if err != nil {
		return out, err
	}
	if (b.More || more) && len(b.Roots) > 0 { // recorded at the root, where undo looks for it
		root := b.Roots[0]
		ops = append(ops, fileop.Op{Type: fileop.Program, Root: root, Path: root, BeforeHash: notKept, AfterHash: notKept,
			NoUndoReason: fmt.Sprintf("there are more than %d files, and what the program did to those beyond is not known", maxBeforeEntries)})
	}

	saved, err := log.SavedBytes(ctx, b.Run)
	if err != nil {
		return out, err
	}
	for i := range ops {
		var before []byte
		if before, saved, err = b.fill(&ops[i], saved); err != nil {
			return out, err
		}
		if ops[i], err = log.Add(ctx, ledger.Attempt{Run: b.Run, Number: b.Attempt}, ops[i], before); err != nil {
			return out, err
		}
		out.add(ops[i])
	}

	if roots != nil { // so that the job's own watch does not start a run for them
		reported := slices.DeleteFunc(slices.Clone(ops), func(op fileop.Op) bool { return op.NoUndoReason != "" })
		err = (&RecordedPlan{roots: roots, ops: reported}).Announce(ctx)
	}
	return out, errors.Join(err, b.Discard())
}

// fill completes the record of a change. It returns the content before the change and the new total
// of saved bytes.
func (b *Before) fill(op *fileop.Op, saved int64) ([]byte, int64, error) {
	op.Agent, op.Batch = b.Agent, b.Key
	e := b.Entries[op.Path]
	if op.NoUndoReason != "" || e == nil || e.Hash == "" || op.BeforeHash == "" {
		return nil, saved, nil
	}
	if saved += e.Size; saved > maxUndoBytes {
		op.NoUndoReason = overUndoBytes
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

// changes returns the changes in the order of their paths. Undo goes backwards, so the folders that
// it removes are empty.
func (b *Before) changes(ctx context.Context, boundary nofollow.UntrustedDirs, now map[string]*beforeEntry) (ops []fileop.Op, err error) {
	all := maps.Clone(b.Entries)
	maps.Copy(all, now)
	paths := slices.Sorted(maps.Keys(all))
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

// change returns the change of one path, or nil if there is none. left is the number of bytes that
// may still be read.
func change(boundary nofollow.UntrustedDirs, path string, was, is *beforeEntry, left *int64) *fileop.Op {
	op := &fileop.Op{Type: fileop.Program, Path: path, Root: cmp.Or(is, was).root}
	switch {
	case was != nil && is != nil && was.Kind == is.Kind && was.same(is):
		return nil
	case was == nil && is.Kind == kindFolder:
		op.Type, op.AfterHash = fileop.DirCreate, folderHash
		return op
	case was != nil && was.Kind == kindFolder && is == nil: // undo recreates the folder for the files in it
		return nil
	case was != nil && was.Kind != "" || is != nil && is.Kind != "":
		op.BeforeHash, op.AfterHash, op.NoUndoReason = notKept, notKept, "it is a link, or was one, or a folder took its place; only files are kept"
		return op
	}

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
	case was != nil && was.Hash == hashOf(string(content)): // only the time differs
		return nil
	default:
		op.AfterHash = hashOf(string(content))
	}
	if rel, err := filepath.Rel(is.root, path); err == nil && tool.IsSecretPath(rel) { // undo does not open these files
		op.NoUndoReason = cmp.Or(op.NoUndoReason, "its name is one of those that hold secrets, which no undo changes")
	}
	return op
}

// same reports whether two states of a path are known to be equal without reading its content. If a
// hash is known, the content is read, because a program can set the time of a file.
func (e *beforeEntry) same(o *beforeEntry) bool {
	switch e.Kind {
	case kindFolder:
		return true
	case kindLink:
		return e.Target == o.Target
	}
	return e.Hash == "" && e.Size == o.Size && e.ModTime == o.ModTime
}

// add counts one change.
func (s *Settled) add(op fileop.Op) {
	if op.Type == fileop.DirCreate {
		return
	}

	s.Files++
	if op.NoUndoReason == "" {
		s.Kept++
	} else if s.Why == "" {
		s.Why = fmt.Sprintf("%s: %s", text.Visible(op.Path), op.NoUndoReason)
	}
}

// Discard removes the stored state. It is called if the program did not start.
func (b *Before) Discard() error { return os.RemoveAll(b.dir) }

// RecoverBefore records the changes that programs made before the daemon crashed. It reads the
// states stored in the folders of dir. It must be called before the attempts of those programs are
// ended.
func RecoverBefore(ctx context.Context, log *fileop.FileOps, boundary nofollow.UntrustedDirs, dir string) error {
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
		if err != nil || json.Unmarshal(raw, &b.beforeRecord) != nil { // the index is incomplete, so the program had not started
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

// findRoots sets the root of each entry again. It leaves out roots that are now behind a link.
func (b *Before) findRoots(boundary nofollow.UntrustedDirs) {
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

// BeforeName returns the name of the folder that stores the Before of a call.
func BeforeName(run int64, attempt int, key string) string {
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%d-%d-%s", run, attempt, hex.EncodeToString(sum[:4]))
}
