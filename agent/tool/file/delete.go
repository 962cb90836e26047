package file

import (
	"context"
	_ "embed"
	"errors"
	"io/fs"
	"path/filepath"

	"rouse/agent/tool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
	"rouse/internal/owner"
	"rouse/internal/text"
)

var (
	//go:embed delete.md
	deleteText string
	//go:embed dir_create.md
	folderText string

	deleteSpec = changing("file_delete", deleteText, tool.Spec{OnDemand: true, Timeout: transferTimeout, Example: `{"path":"old/report.md"}`})
	folderSpec = changing("dir_create", folderText, tool.Spec{OnDemand: true, Example: `{"path":"sorted/2026"}`})
)

type deleteArgs struct {
	Path      string `json:"path" jsonschema:"relative to the working folder, or absolute inside a folder granted for writing"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"delete a folder with its contents"`
	DryRun    bool   `json:"dry_run,omitempty" jsonschema:"only check, without deleting"`
}

func (f *files) deletePath(ctx context.Context, in tool.Invocation, a deleteArgs) (tool.Envelope, error) {
	return f.inTurn(ctx, func() (any, error) { return f.delete(ctx, in, a) }, a.Path)
}

func (f *files) delete(ctx context.Context, in tool.Invocation, a deleteArgs) (transferResult, error) {
	before, err := f.earlier(ctx, in)
	if err != nil {
		return transferResult{}, err
	}
	res := transferResult{Path: f.shown(a.Path), Kind: "file", CanUndo: true, DryRun: a.DryRun}
	// An earlier attempt was interrupted. Keep the records of its deletions and delete the rest.
	if len(before.ops) > 0 {
		if before.all {
			res.Files, res.OperationID = len(before.ops), in.Key
			return res, nil
		}
		var left []fileop.Op
		for _, op := range before.ops {
			now, err := stateOf(f.roots, op)
			if err != nil {
				return res, err
			}
			if now.info != nil {
				left = append(left, op)
			}
		}
		if err := f.discard(ctx, left); err != nil {
			return res, err
		}
	}

	items, size, err := f.itemsAt(ctx, a.Path, true)
	if err != nil {
		return res, err
	}
	res.count(items, size)
	if len(items) > 1 && !a.Recursive {
		return res, tool.RefusePath(tool.KindRejected, "%s is a folder with %s; set recursive to delete it", a.Path, text.Plural(len(items)-1, "entry"))
	}
	if err := f.keepable(ctx, in, a.Path, items, size); err != nil || a.DryRun {
		return res, err
	}

	ops, err := f.keepItems(ctx, in, a.Path, items)
	if err == nil {
		var gone int
		if gone, err = f.removeItems(a.Path, items); err == nil {
			res.OperationID = in.Key
			return res, nil
		}
		if ops = ops[gone:]; gone > 0 {
			err = tool.RefusePath(tool.KindExecutionError, "%d of %d were deleted, then: %v; file_undo restores them", gone, len(items), err)
		}
	}
	return res, errors.Join(err, f.discard(ctx, ops))
}

// keepable returns an error if the items cannot be stored for undo.
func (f *files) keepable(ctx context.Context, in tool.Invocation, path string, items []item, size int64) error {
	for _, one := range items {
		switch shown := filepath.Join(path, one.rel); {
		case one.info.IsDir():
		case one.info.Mode().Perm()&0o200 == 0:
			return tool.RefusePath(tool.KindRejected, "%s is marked read-only", shown)
		case one.info.Size() > maxKept:
			return tool.RefusePath(tool.KindRejected, "%s is larger than %s, the limit for undo, and is not deleted; move it away instead", shown, text.Size(maxKept))
		}
	}

	kept, err := f.log.SavedBytes(ctx, in.Run)
	if err != nil {
		return &hostError{err}
	}
	if kept+size > maxUndoBytes {
		return tool.RefusePath(tool.KindRejected, "%s is not deleted: no more than %s of a run's changes are kept for undo; move it away instead", path, text.Size(maxUndoBytes))
	}
	return nil
}

// keepItems records the items with their contents, in the order of their deletion.
func (f *files) keepItems(ctx context.Context, in tool.Invocation, path string, items []item) (ops []fileop.Op, err error) {
	var contents [][]byte
	begin, held := 0, 0
	flush := func() error {
		err := f.log.AddAll(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt}, ops[begin:], contents)
		if err != nil {
			ops = ops[:begin]
			return &hostError{err}
		}
		begin, held, contents = len(ops), 0, nil
		return nil
	}

	for i := len(items) - 1; i >= 0; i-- {
		op, content, err := f.keepItem(filepath.Join(path, items[i].rel), items[i])
		if err != nil {
			return ops[:begin], err
		}
		op.Agent, op.Batch = in.Agent, in.Key
		ops, contents, held = append(ops, op), append(contents, content), held+len(content)
		if held >= maxBatch {
			if err := flush(); err != nil {
				return ops, err
			}
		}
	}
	if len(contents) == 0 {
		return ops, nil
	}
	return ops, flush()
}

func (f *files) keepItem(shown string, one item) (op fileop.Op, content []byte, err error) {
	p, err := f.roots.Resolve(shown, true)
	if err != nil {
		return op, nil, err
	}
	defer p.Close()

	op = fileop.Op{Type: fileop.Delete, Root: p.Name(), Path: filepath.Join(p.Name(), p.Rel), Mode: uint32(one.info.Mode().Perm()), BeforeHash: one.hash}
	if one.info.IsDir() {
		op.Type = fileop.DirDelete
		return op, nil, nil
	}

	now, err := f.content(p, shown)
	if err == nil && now.sum != one.hash {
		err = changedMeanwhile(shown)
	}
	op.Size = int64(len(now.text))
	return op, []byte(now.text), err
}

type folderArgs struct {
	Path   string `json:"path" jsonschema:"relative to the working folder, or absolute inside a folder granted for writing"`
	DryRun bool   `json:"dry_run,omitempty" jsonschema:"only check, without creating"`
}

type folderResult struct {
	Path        string `json:"path"`
	Created     bool   `json:"created"` // false if it already existed
	CanUndo     bool   `json:"can_undo"`
	OperationID string `json:"operation_id,omitempty"`
	DryRun      bool   `json:"dry_run,omitempty"`
}

func (f *files) makeFolder(ctx context.Context, in tool.Invocation, a folderArgs) (tool.Envelope, error) {
	return f.inTurn(ctx, func() (any, error) { return f.createFolder(ctx, in, a) }, a.Path)
}

func (f *files) createFolder(ctx context.Context, in tool.Invocation, a folderArgs) (folderResult, error) {
	res := folderResult{Path: f.shown(a.Path), CanUndo: true, DryRun: a.DryRun}
	p, err := f.roots.Resolve(a.Path, true)
	if err != nil {
		return res, err
	}
	defer p.Close()

	switch info, err := p.Lstat(p.Rel); {
	case err == nil && info.IsDir():
		before, err := f.earlier(ctx, in)
		if res.Created = len(before.ops) > 0; res.Created { // by an interrupted attempt
			res.OperationID = in.Key
		}
		return res, err
	case err == nil:
		return res, tool.RefusePath(tool.KindRejected, "%s exists: a file of %s; choose another name", a.Path, text.Size(info.Size()))
	case !errors.Is(err, fs.ErrNotExist):
		return res, p.Explain(err)
	}

	res.Created = true
	ops := missingFolders(p, p.Rel)
	for i := range ops {
		ops[i].Agent, ops[i].Batch = in.Agent, in.Key
	}
	if a.DryRun {
		return res, nil
	}

	if err := f.log.AddAll(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt}, ops, make([][]byte, len(ops))); err != nil {
		return res, &hostError{err}
	}
	err = makeFolders(p)
	if err == nil {
		err = owner.MakeFoldersIn(p.Root, p.Rel)
	}
	if err != nil {
		return res, errors.Join(p.Explain(err), f.discard(ctx, ops))
	}
	res.OperationID = in.Key
	return res, nil
}
