package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
)

// folderHash stands for a folder where other changes have the hash of what a file holds.
const folderHash = "folder"

// Planned is a change of a file or folder that a command is about to make (OSA-36).
type Planned struct {
	Type ledger.FileOpType // move, copy, delete or dirCreate
	Path string            // that changes; relative to the workdir, or absolute
	From string            // whose content Path will have; "" where Path will be gone, and of a folder
}

// Kept are the changes of one command, recorded before it runs.
type Kept struct {
	log   Log
	roots *tool.Roots
	ops   []ledger.FileOp
}

// Keep records what a command is about to change, with what is lost by it, so that file_undo can
// take it back: all of it, or nothing. A *tool.PathError says why it cannot be kept; every other
// error is the host's.
func Keep(ctx context.Context, log Log, roots *tool.Roots, in tool.Invocation, plan []Planned) (*Kept, error) {
	spent, err := log.FileBytes(ctx, in.Run)
	if err != nil {
		return nil, err
	}

	k := &Kept{log: log, roots: roots}
	var olds []fileState
	for _, step := range plan {
		op, old, err := recordOf(roots, step)
		if err != nil {
			return nil, err
		}
		if spent += op.Size; spent > maxUndoBytes {
			return nil, &tool.PathError{Kind: tool.KindRejected, Message: fmt.Sprintf("this run has changed files of more than %d MiB, and no more is kept of them", maxUndoBytes>>20)}
		}

		op.Agent, op.Batch = in.Agent, in.Key
		k.ops, olds = append(k.ops, op), append(olds, old)
	}

	for i, op := range k.ops {
		if k.ops[i], err = log.AddFileOp(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt}, op, []byte(olds[i].text)); err != nil {
			k.ops = k.ops[:i]
			return nil, errors.Join(err, k.Drop(context.WithoutCancel(ctx)))
		}
	}

	return k, nil
}

// recordOf is a planned change as it is recorded, and what it takes away.
func recordOf(roots *tool.Roots, step Planned) (op ledger.FileOp, old fileState, err error) {
	p, err := roots.At(step.Path, true)
	if err != nil {
		return op, old, err
	}
	defer p.Close()

	if !p.InWorkdir() {
		return op, old, &tool.PathError{Kind: tool.KindRejected, Message: step.Path + " is outside of the working folder"}
	}
	if old, err = readAny(p, step.Path); err != nil {
		return op, old, err
	}

	op = ledger.FileOp{Type: step.Type, Root: p.Name(), Path: filepath.Join(p.Name(), p.Rel)}
	if old.info != nil {
		if old.info.IsDir() {
			return op, old, &tool.PathError{Kind: tool.KindRejected, Message: step.Path + " is a folder"}
		}
		op.Mode, op.Size, op.BeforeHash = uint32(old.info.Mode().Perm()), int64(len(old.text)), hashOf(old.text)
	}

	switch {
	case step.Type == ledger.FileDirCreate:
		op.AfterHash = folderHash
	case step.From != "":
		from, err := roots.At(step.From, false)
		if err != nil {
			return op, old, err
		}
		defer from.Close()

		content, err := readAny(from, step.From)
		if err != nil {
			return op, old, err
		}
		if content.info == nil || content.info.IsDir() {
			return op, old, &tool.PathError{Kind: tool.KindRejected, Message: step.From + " is not a file"}
		}

		op.AfterHash = hashOf(content.text)
	case old.info == nil:
		return op, old, &tool.PathError{Kind: tool.KindNotFound, Message: "there is no " + step.Path}
	}

	return op, old, nil
}

// Any says whether there is anything that could be taken back.
func (k *Kept) Any() bool { return len(k.ops) > 0 }

// Came says whether everything is now as it was foreseen.
func (k *Kept) Came() bool {
	for _, op := range k.ops {
		p, now, err := openChanged(k.roots, op)
		if err != nil {
			return false
		}

		p.Close()
		if !now.hasHash(op.AfterHash) {
			return false
		}
	}
	return true
}

// Announce tells of the files that there are by the changes, as of all that a run writes.
func (k *Kept) Announce(ctx context.Context) error {
	for _, op := range k.ops {
		if op.AfterHash == "" || op.AfterHash == folderHash {
			continue
		}

		p, err := k.roots.At(op.Path, true)
		if err != nil {
			continue // it is gone again
		}

		err = p.Announce(ctx, p.Rel)
		if p.Close(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Drop forgets the changes: they did not come about as foreseen.
func (k *Kept) Drop(ctx context.Context) error {
	var all error
	for _, op := range k.ops {
		all = errors.Join(all, k.log.DropFileOp(ctx, op.ID))
	}
	return all
}
