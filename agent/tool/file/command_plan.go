package file

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
)

// folderHash is recorded as the hash of a folder.
const folderHash = "folder"

// PlannedChange is a change of a file or folder that a command is going to make.
type PlannedChange struct {
	Type fileop.Type // move, copy, delete or dirCreate
	Path string      // changed path, relative to the workdir or absolute
	// From is the file whose content Path will have. It is "" for a folder or a deletion.
	From string
}

// RecordedPlan holds the changes of one command, recorded before the command runs.
type RecordedPlan struct {
	log   *fileop.FileOps
	roots *tool.Roots
	ops   []fileop.Op
}

// RecordPlan records the changes that a command is going to make, with the content that they
// destroy, so that file_undo can revert them. It records all changes or none. The error is a
// *tool.Refusal if a change cannot be recorded. Every other error is a fault of the host.
func RecordPlan(ctx context.Context, log *fileop.FileOps, roots *tool.Roots, in tool.Invocation, plan []PlannedChange) (*RecordedPlan, error) {
	spent, err := log.SavedBytes(ctx, in.Run)
	if err != nil {
		return nil, err
	}

	// All steps are read before the first one is recorded, so that a failing plan leaves no record.
	k := &RecordedPlan{log: log, roots: roots}
	var olds []fileState
	for _, step := range plan {
		op, old, err := recordOf(roots, step)
		if err != nil {
			return nil, err
		}
		if spent += op.Size; spent > maxUndoBytes {
			return nil, tool.RefusePath(tool.KindRejected, "%s", overUndoBytes)
		}

		op.Agent, op.Batch = in.Agent, in.Key
		k.ops, olds = append(k.ops, op), append(olds, old)
	}

	for i, op := range k.ops {
		if k.ops[i], err = log.Add(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt}, op, []byte(olds[i].text)); err != nil {
			k.ops = k.ops[:i]
			return nil, errors.Join(err, k.Discard(context.WithoutCancel(ctx)))
		}
	}

	return k, nil
}

// CheckPlan returns an error if RecordPlan would refuse the plan.
func CheckPlan(roots *tool.Roots, plan []PlannedChange) error {
	for _, step := range plan {
		if _, _, err := recordOf(roots, step); err != nil {
			return err
		}
	}
	return nil
}

// recordOf returns the record of a planned change and reads the content that the change destroys.
func recordOf(roots *tool.Roots, step PlannedChange) (op fileop.Op, old fileState, err error) {
	p, err := roots.Resolve(step.Path, true)
	if err != nil {
		return op, old, err
	}
	defer p.Close()

	if !p.InWorkdir() {
		return op, old, tool.RefusePath(tool.KindRejected, "%s is outside of the working folder", step.Path)
	}
	if old, err = readAny(p, step.Path); err != nil {
		return op, old, err
	}

	op = fileop.Op{Type: step.Type, Root: p.Name(), Path: filepath.Join(p.Name(), p.Rel)}
	if old.info != nil {
		if old.info.IsDir() {
			return op, old, tool.RefusePath(tool.KindRejected, "%s is a folder", step.Path)
		}
		op.Mode, op.Size, op.BeforeHash = uint32(old.info.Mode().Perm()), int64(len(old.text)), hashOf(old.text)
	}

	switch {
	case step.Type == fileop.DirCreate:
		op.AfterHash = folderHash
	case step.From != "":
		// Hashed before the command. Afterwards, its changes could not be told from those of other
		// programs.
		from, err := roots.Resolve(step.From, false)
		if err != nil {
			return op, old, err
		}
		defer from.Close()

		content, err := readAny(from, step.From)
		if err != nil {
			return op, old, err
		}
		if content.info == nil || content.info.IsDir() {
			return op, old, tool.RefusePath(tool.KindRejected, "%s is not a file", step.From)
		}

		op.AfterHash = hashOf(content.text)
	case old.info == nil:
		return op, old, tool.RefusePath(tool.KindNotFound, "there is no %s", step.Path)
	}

	return op, old, nil
}

// Any reports whether the plan has a change that can be undone.
func (k *RecordedPlan) Any() bool { return len(k.ops) > 0 }

// CameAbout reports whether the changes were made as planned.
func (k *RecordedPlan) CameAbout() bool {
	return !slices.ContainsFunc(k.ops, func(op fileop.Op) bool {
		now, err := stateOf(k.roots, op)
		return err != nil || !now.hasHash(op.AfterHash)
	})
}

// Announce tells the watches which files the changes wrote.
func (k *RecordedPlan) Announce(ctx context.Context) error {
	for _, op := range k.ops {
		if op.AfterHash == "" || op.AfterHash == folderHash {
			continue
		}

		p, err := k.roots.Resolve(op.Path, true)
		if err != nil {
			continue // removed again
		}

		err = p.Announce(ctx, p.Rel)
		if p.Close(); err != nil && !domain.IsFileFault(err) { // removed meanwhile, or unreadable
			return err
		}
	}
	return nil
}

// Discard deletes the records. It is called if the changes were not made as planned.
func (k *RecordedPlan) Discard(ctx context.Context) error {
	var all error
	for _, op := range k.ops {
		all = errors.Join(all, k.log.Delete(ctx, op.ID))
	}
	return all
}
