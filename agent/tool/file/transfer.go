package file

import (
	"context"
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"rouse/agent/tool"
	"rouse/internal/atomicfile"
	"rouse/internal/fspath"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
	"rouse/internal/text"
)

var (
	//go:embed move.md
	moveText string
	//go:embed copy.md
	copyText string

	moveSpec = changing("file_move", moveText, tool.Spec{Path: "to", Timeout: transferTimeout, Example: `{"from":"inbox/scan.pdf","to":"sorted/2026/"}`})
	copySpec = changing("file_copy", copyText, tool.Spec{Path: "to", Timeout: transferTimeout, OnDemand: true, Example: `{"from":"report.md","to":"archive/report.md"}`})
)

// transferTimeout limits a call, which may read and write 4 GiB.
const transferTimeout = 10 * time.Minute

type transferArgs struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Overwrite bool   `json:"overwrite,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"`
}

type transferResult struct {
	From        string `json:"from,omitempty"`
	Path        string `json:"path"` // new path
	Kind        string `json:"kind"` // file or folder
	Files       int    `json:"files"`
	Bytes       int64  `json:"bytes"`
	Replaced    bool   `json:"replaced,omitempty"`
	CanUndo     bool   `json:"can_undo"`
	OperationID string `json:"operation_id,omitempty"`
	DryRun      bool   `json:"dry_run,omitempty"`
}

// count sets the kind, the number of files and the size of a transfer.
func (r *transferResult) count(items []item, size int64) {
	r.Kind, r.Bytes = "file", size
	if items[0].info.IsDir() {
		r.Kind = "folder"
	}
	for _, one := range items {
		if !one.info.IsDir() {
			r.Files++
		}
	}
}

func (f *files) transferNeed(a transferArgs, moves bool) (tool.Access, error) {
	if a.From == "" || a.To == "" {
		return tool.Access{}, nil // the call itself returns the error
	}
	return f.roots.TransferNeed(filepath.Clean(a.From), f.target(a), moves), nil
}

func (f *files) move(ctx context.Context, in tool.Invocation, a transferArgs) (tool.Envelope, error) {
	to := f.target(a)
	return f.inTurn(ctx, func() (any, error) { return f.transfer(ctx, in, a, to, true) }, a.From, to)
}

func (f *files) copy(ctx context.Context, in tool.Invocation, a transferArgs) (tool.Envelope, error) {
	to := f.target(a)
	return f.inTurn(ctx, func() (any, error) { return f.transfer(ctx, in, a, to, false) }, a.From, to)
}

// inTurn locks the paths of a call and then makes its change.
func (f *files) inTurn(ctx context.Context, do func() (any, error), paths ...string) (tool.Envelope, error) {
	var names []string
	for _, path := range paths {
		names = append(names, f.roots.Canonical(path))
	}
	release, err := f.locks.AcquireAll(ctx, names...)
	if err != nil {
		return failureOf(paths[0], err)
	}
	defer release()

	res, err := do()
	if err != nil {
		return failureOf(paths[0], err)
	}
	return tool.Success(res), nil
}

// target returns the new path. If To is an existing folder or ends with a slash, the file keeps its
// name.
func (f *files) target(a transferArgs) string {
	to := filepath.Clean(a.To)
	if strings.HasSuffix(a.To, "/") || strings.HasSuffix(a.To, string(filepath.Separator)) {
		return filepath.Join(to, filepath.Base(filepath.Clean(a.From)))
	}

	p, err := f.roots.Resolve(to, true)
	if err != nil {
		return to
	}
	defer p.Close()
	if info, err := p.Lstat(p.Rel); err == nil && info.IsDir() {
		return filepath.Join(to, filepath.Base(filepath.Clean(a.From)))
	}
	return to
}

// transfer moves or copies. The changes are recorded before they are made, so that undo works after
// a crash.
func (f *files) transfer(ctx context.Context, in tool.Invocation, a transferArgs, to string, moves bool) (transferResult, error) {
	before, err := f.earlier(ctx, in)
	if err != nil {
		return transferResult{}, err
	}
	if len(before.ops) > 0 {
		if res, done, err := f.finishTransfer(a, in, before); done || err != nil {
			return res, err
		}
		if err := f.discard(ctx, before.ops); err != nil {
			return transferResult{}, err
		}
	}

	items, size, err := f.itemsAt(ctx, a.From, moves)
	if err != nil {
		return transferResult{}, err
	}
	p, err := f.roots.Resolve(to, true)
	if err != nil {
		return transferResult{}, err
	}
	defer p.Close()

	old, err := f.inTheWay(ctx, in, p, a, to, items[0])
	if err != nil {
		return transferResult{}, err
	}
	ops, err := f.plan(in, a.From, to, p, items, old, moves)
	if err != nil {
		return transferResult{}, err
	}

	res := transferResult{From: f.shown(a.From), Path: f.shown(to), Replaced: old.info != nil, CanUndo: true, DryRun: a.DryRun}
	res.count(items, size)
	if a.DryRun {
		return res, nil
	}

	if err := makeFolders(p); err != nil {
		return res, err
	}
	res.OperationID = in.Key
	return res, f.carry(ctx, in, a, p, items, ops, old, moves)
}

// shown returns a path as the caller would write it.
func (f *files) shown(path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.roots.Workdir(), path)
	}
	return f.relToWorkdir(path)
}

// inTheWay reads the file that will be overwritten. It returns an error if the file must not be
// overwritten.
func (f *files) inTheWay(ctx context.Context, in tool.Invocation, p *tool.FileHandle, a transferArgs, to string, source item) (fileState, error) {
	refuse := func(format string, args ...any) (fileState, error) {
		return fileState{}, tool.RefusePath(tool.KindRejected, format, args...)
	}
	from, err := f.roots.Resolve(a.From, false)
	if err != nil {
		return fileState{}, err
	}
	source0, target := filepath.Join(from.Name(), from.Rel), filepath.Join(p.Name(), p.Rel)
	if err := from.Close(); err != nil {
		return fileState{}, err
	}
	if source.info.IsDir() && target != source0 && fspath.Within(target, source0) {
		return refuse("%s lies in %s; choose a place outside of it", to, a.From)
	}

	info, err := p.Lstat(p.Rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fileState{}, nil
	case err != nil:
		return fileState{}, p.Explain(err)
	case os.SameFile(info, source.info):
		return refuse("%s and %s are the same file", a.From, to)
	case info.IsDir():
		return refuse("%s is an existing folder, which cannot be overwritten; choose another name", to)
	case !info.Mode().IsRegular():
		return refuse("%s exists, and is neither a file nor a folder; choose another name", to)
	case !a.Overwrite:
		return refuse("%s exists: a file of %s, last changed %s; choose another name, or set overwrite to replace it", to, text.Size(info.Size()), info.ModTime().Format(time.RFC3339))
	case source.info.IsDir():
		return refuse("%s is an existing file, and a folder cannot replace it; choose another name", to)
	case info.Mode().Perm()&0o200 == 0:
		return refuse("%s is marked read-only", to)
	case info.Size() > maxKept:
		return refuse("%s is larger than %s, the limit for undo, and is not overwritten", to, text.Size(maxKept))
	}

	kept, err := f.log.SavedBytes(ctx, in.Run)
	if err != nil {
		return fileState{}, &hostError{err}
	}
	if kept+info.Size() > maxUndoBytes {
		return refuse("%s is not overwritten: the changes of this run exceed %s, the limit for undo", to, text.Size(maxUndoBytes))
	}
	return f.content(p, to)
}

// content reads a whole file for its record.
//
// nolint: contextcheck // it reads local state and returns soon
//
// nolint: contextcheck // it reads local state and returns soon
func (f *files) content(p *tool.FileHandle, shown string) (fileState, error) {
	file, err := p.OpenChecked()
	if err != nil {
		return fileState{}, err
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return fileState{}, err
	}
	var all strings.Builder
	sum, err := copyHashed(context.Background(), &all, file)
	if err == nil && all.Len() > maxKept {
		err = tool.RefusePath(tool.KindRejected, "%s is larger than %s, the limit for undo", shown, text.Size(maxKept))
	}
	return fileState{info: info, text: all.String(), sum: sum}, err
}

// plan returns the changes of a call. Undo reverts them in reverse order.
func (f *files) plan(in tool.Invocation, from, to string, p *tool.FileHandle, items []item, old fileState, moves bool) ([]fileop.Op, error) {
	s, err := f.roots.Resolve(from, moves)
	if err != nil {
		return nil, err
	}
	defer s.Close()

	kind := fileop.Copy
	if moves {
		kind = fileop.Move
	}
	root, source := s.Name(), filepath.Join(s.Name(), s.Rel)
	target := filepath.Join(p.Name(), p.Rel)
	var ops, gone []fileop.Op
	for _, one := range items {
		// A path that the call could not write directly must not be written as part of a folder
		// either.
		at, err := f.roots.Resolve(filepath.Join(to, one.rel), true)
		if err == nil {
			err = at.Close()
		}
		if err != nil {
			return nil, err
		}

		made := fileop.Op{Type: kind, Root: p.Name(), Path: filepath.Join(target, one.rel), AfterHash: one.hash}
		away := fileop.Op{Type: fileop.MoveAway, Root: root, Path: filepath.Join(source, one.rel), BeforeHash: one.hash, Mode: uint32(one.info.Mode().Perm())}
		if one.info.IsDir() {
			made.Type, away.Type = fileop.DirCreate, fileop.DirDelete
			gone = append(gone, away)
			ops = append(ops, made)
			continue
		}
		if old.info != nil {
			made.Mode, made.Size, made.BeforeHash = uint32(old.info.Mode().Perm()), old.info.Size(), old.sum
		}
		if ops = append(ops, made); moves {
			ops = append(ops, away)
		}
	}
	if moves {
		slices.Reverse(gone) // innermost first
		ops = append(ops, gone...)
	}
	ops[0].CreatedFolder = firstMissingFolder(p)
	for i := range ops {
		ops[i].Agent, ops[i].Batch = in.Agent, in.Key
	}
	return ops, nil
}

// carry records the changes and then makes them. p holds the folder of the target open.
func (f *files) carry(ctx context.Context, in tool.Invocation, a transferArgs, p *tool.FileHandle, items []item, ops []fileop.Op, old fileState, moves bool) error {
	s, err := f.roots.Resolve(a.From, moves)
	if err != nil {
		return err
	}
	defer s.Close()
	if moves {
		if err := s.Hold(); err != nil {
			return s.Explain(err)
		}
	}

	before := make([][]byte, len(ops))
	for i, op := range ops {
		if op.Type != fileop.MoveAway && op.Size > 0 {
			before[i] = []byte(old.text)
		}
	}
	// ready is called right before the rename. now is the absolute path of the complete content.
	wasRecorded := false
	ready := func(now string) error {
		for _, one := range items {
			if one.info.IsDir() {
				continue
			}
			at := filepath.Join(now, one.rel)
			info, err := os.Lstat(at)
			if err == nil {
				err = p.AnnounceAs(ctx, at, one.rel, one.hash, info)
			}
			if err != nil {
				return notAnnounced(p, err)
			}
		}
		if !wasRecorded {
			if err := f.log.AddAll(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt}, ops, before); err != nil {
				return &hostError{err}
			}
			wasRecorded = true
		}
		if !old.unchanged(p) {
			return changedMeanwhile(f.shown(a.To))
		}
		return nil
	}

	err = f.make(ctx, a, s, p, items, old.info != nil, moves, ready)
	if err != nil && wasRecorded {
		if _, partly := errors.AsType[*partlyMovedError](err); !partly {
			err = errors.Join(err, f.discard(ctx, ops))
		}
	}
	switch {
	case err == nil || errors.As(err, new(*hostError)):
		return err
	case errors.Is(err, fs.ErrExist):
		return tool.RefusePath(tool.KindRejected, "%s was created meanwhile; check it, then choose another name", f.shown(filepath.Join(p.Name(), p.Rel)))
	}
	return p.Explain(err)
}

// partlyMovedError reports that a move created the new files but did not remove all old ones.
type partlyMovedError struct{ error }

func (e *partlyMovedError) Unwrap() error { return e.error }

// make renames if possible. Otherwise it makes a verified copy.
func (f *files) make(ctx context.Context, a transferArgs, s, p *tool.FileHandle, items []item, replace, moves bool, ready func(now string) error) error {
	if moves {
		if err := ready(filepath.Join(s.Name(), s.Rel)); err != nil {
			return err
		}
		if err := rename(s, p, items[0].info, replace); !errors.Is(err, syscall.EXDEV) {
			return err
		}
	}

	complete := func(temp string) error {
		for _, one := range items {
			if moves && !one.info.IsDir() { // a rename preserves the time
				if err := p.Chtimes(filepath.Join(temp, one.rel), one.info.ModTime(), one.info.ModTime()); err != nil {
					return err
				}
			}
		}
		return ready(filepath.Join(p.Name(), temp))
	}

	var err error
	if items[0].info.IsDir() {
		var temp string
		if temp, err = f.copyFolder(ctx, a.From, p, items); err != nil {
			return err
		}
		if err = complete(temp); err == nil {
			err = atomicfile.MoveNew(atomicfile.Name{Root: p.Root, Name: temp}, atomicfile.Name{Root: p.Root, Name: p.Rel})
		}
		if err != nil {
			return errors.Join(err, p.RemoveAll(temp))
		}
		err = atomicfile.SyncFolderIn(p.Root, ".")
	} else {
		err = copyInto(ctx, s, p, items[0], replace, complete)
	}
	if err != nil || !moves {
		return err
	}

	if _, err := f.removeItems(a.From, items); err != nil {
		return &partlyMovedError{tool.RefusePath(tool.KindExecutionError, "the copy at %s is complete, but %s could not be removed completely: %v", f.shown(a.To), a.From, err)}
	}
	return nil
}

// finishTransfer completes a call of an earlier attempt. If all new files exist, it removes the
// remaining old ones. done is false if the earlier attempt made no change.
func (f *files) finishTransfer(a transferArgs, in tool.Invocation, before recorded) (res transferResult, done bool, err error) {
	arrived, untouched := true, true
	var left []fileop.Op // old files, then old folders, outermost first
	for _, op := range slices.Backward(before.ops) {
		now, err := stateOf(f.roots, op)
		if err != nil {
			return res, false, err
		}
		untouched = untouched && now.hasHash(op.BeforeHash)
		arrived = arrived && (op.AfterHash == "" || now.hasHash(op.AfterHash))
		switch {
		case op.AfterHash == "" && now.info != nil:
			left = append(left, op)
		case op.AfterHash != "" && op.AfterHash != folderHash && now.info != nil:
			res.Files, res.Bytes = res.Files+1, res.Bytes+now.info.Size()
		}
	}
	switch {
	case !arrived && untouched:
		return res, false, nil
	case !arrived:
		return res, false, changedMeanwhile(f.shown(a.From))
	}

	for _, op := range left {
		p, now, err := openChanged(f.roots, op)
		if err != nil {
			return res, false, err
		}
		if !now.hasHash(op.BeforeHash) {
			return res, false, errors.Join(changedMeanwhile(f.relToWorkdir(op.Path)), p.Close())
		}
		if err := errors.Join(p.Remove(p.Rel), p.Close()); err != nil {
			return res, false, err
		}
	}

	top := before.ops[len(before.ops)-1] // the oldest change
	if res.Kind = "file"; top.Type == fileop.DirCreate {
		res.Kind = "folder"
	}
	res.From, res.Path, res.Replaced, res.CanUndo, res.OperationID = f.shown(a.From), f.relToWorkdir(top.Path), top.BeforeHash != "", true, in.Key
	return res, true, nil
}
