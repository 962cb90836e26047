package file

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"rouse/agent/tool"
	"rouse/internal/atomicfile"
	"rouse/internal/ledger/fileop"
	"rouse/internal/nofollow"
	"rouse/internal/owner"
)

// Undo reverts one recorded change of a file. It returns a *tool.Refusal if the file was changed
// since, unless force is set. It always refuses a change that cannot be restored. It accesses only
// the folder that was granted to the run, and follows no link below the boundary.
func Undo(ctx context.Context, log *fileop.FileOps, locks *tool.Locks, b nofollow.UntrustedDirs, op fileop.Op, force bool) error {
	gone := func(path string, err error) error {
		return tool.RefusePath(tool.KindNotFound, "the folder of %s is gone: %v", path, err)
	}
	roots, err := tool.NewRootsWithin(b, op.Root, nil)
	if err != nil {
		return gone(op.Path, err)
	}
	source := roots
	if op.Type == fileop.MoveAway {
		sibling, err := siblingOf(ctx, log, op)
		if err != nil {
			return err
		}
		if source, err = tool.NewRootsWithin(b, sibling.Root, nil); err != nil {
			return gone(sibling.Path, err)
		}
	}
	return undo(ctx, log, locks, roots, source, op, force)
}

// siblingOf returns the change with the new name of a moved file. It was recorded right before op.
func siblingOf(ctx context.Context, log *fileop.FileOps, op fileop.Op) (fileop.Op, error) {
	ops, err := log.List(ctx, fileop.Filter{Run: op.Run, Batch: op.Batch, Limit: -1})
	if err != nil {
		return fileop.Op{}, &hostError{err}
	}
	for _, one := range ops { // newest first
		if one.ID < op.ID {
			return one, nil
		}
	}
	return fileop.Op{}, &hostError{fmt.Errorf("the new name of %s is not on record", op.Path)}
}

// moveBack restores the old name of a moved file. If the move replaced another file, moveBack makes
// a copy, because the replaced file is restored later.
func moveBack(ctx context.Context, log *fileop.FileOps, source *tool.Roots, p *tool.FileHandle, op fileop.Op) error {
	sibling, err := siblingOf(ctx, log, op)
	if err != nil {
		return err
	}

	from, err := source.Resolve(sibling.Path, true)
	if err != nil {
		return err
	}
	defer from.Close()

	now, err := hashAny(ctx, from)
	switch {
	case err != nil:
		return from.Explain(err)
	case !now.hasHash(op.BeforeHash):
		return tool.RefusePath(tool.KindRejected, "%s cannot be moved back: %s was changed or removed since", op.Path, sibling.Path)
	}

	if folder := filepath.Dir(p.Rel); folder != "." {
		if err := owner.MakeFoldersIn(p.Root, folder); err != nil {
			return err
		}
	}
	if err := errors.Join(from.Hold(), p.Hold()); err != nil {
		return err
	}

	one := item{info: now.info, hash: op.BeforeHash}
	if sibling.BeforeHash == "" {
		if err := p.AnnounceAs(ctx, filepath.Join(from.Name(), from.Rel), ".", one.hash, one.info); err != nil {
			return &hostError{err}
		}
		if err := rename(from, p, now.info, false); !errors.Is(err, syscall.EXDEV) {
			return err
		}
	}
	return copyInto(ctx, from, p, one, true, func(string) error { return nil })
}

// whyNotUndoable returns the reason why a change cannot be undone now, or "".
func whyNotUndoable(roots *tool.Roots, op fileop.Op) string {
	p, old, err := openChanged(roots, op)
	if err != nil {
		return err.Error()
	}
	defer p.Close()
	return undoObstacle(p, op, old, func(string) bool { return false })
}

// undoObstacle returns the reason why a change cannot be undone, given the current state of its
// path. It returns "" if it can. gone reports the paths that the other changes undone with this one
// will remove.
func undoObstacle(p *tool.FileHandle, op fileop.Op, now fileState, gone func(path string) bool) string {
	if why := contentObstacle(op, now); why != "" || op.Type != fileop.DirCreate {
		return why
	}
	switch more, err := folderHasOther(p, p.Rel, gone); {
	case err != nil:
		return err.Error()
	case more:
		return "the folder holds something by now"
	}
	return ""
}

// stateOf returns the current state of the path of a change.
func stateOf(roots *tool.Roots, op fileop.Op) (fileState, error) {
	p, now, err := openChanged(roots, op)
	if err != nil {
		return now, err
	}
	return now, p.Close()
}

// openChanged opens the path of a change and reads its current state.
//
// nolint: contextcheck // it reads local state and returns soon
func openChanged(roots *tool.Roots, op fileop.Op) (*tool.FileHandle, fileState, error) {
	p, err := roots.Resolve(op.Path, true)
	if err != nil {
		return nil, fileState{}, err
	}

	// The file tools change only text, but a program may have moved or deleted any file.
	var old fileState
	if byCommand(op) {
		old, err = hashAny(context.Background(), p)
	} else {
		old, err = readCurrent(p, op.Path)
	}
	if err != nil {
		return nil, old, errors.Join(err, p.Close())
	}
	return p, old, nil
}

// hasHash reports whether the content has the given hash. The hash of a missing file is "".
func (b fileState) hasHash(hash string) bool {
	if b.info == nil {
		return hash == ""
	}
	if b.info.IsDir() {
		return hash == folderHash
	}
	if b.sum != "" {
		return hash == b.sum
	}
	return hash == hashOf(b.text)
}

// contentObstacle returns the reason why a change cannot be undone, given the current state of its
// file.
func contentObstacle(op fileop.Op, now fileState) string {
	switch {
	case !op.UndoneAt.IsZero():
		return "it was undone at " + op.UndoneAt.Format(time.RFC3339)
	case op.NoUndoReason != "":
		return op.NoUndoReason
	case now.hasHash(op.AfterHash):
		return ""
	case now.hasHash(op.BeforeHash):
		return "the file is as it was before: the change did not come about, or was reverted manually"
	case now.info == nil:
		return "the file was removed since"
	}
	return "the file was changed since"
}

// undo restores the file of a change and marks the change as undone. A change that was not made is
// only marked. source gives access to the new name of a moved file.
func undo(ctx context.Context, log *fileop.FileOps, locks *tool.Locks, roots, source *tool.Roots, op fileop.Op, force bool) error {
	release, err := locks.Acquire(ctx, roots.Canonical(op.Path))
	if err != nil {
		return err
	}
	defer release()

	p, old, err := openChanged(roots, op)
	if err != nil {
		return err
	}
	defer p.Close()

	// A crash before the change or before the mark leaves the file in its old state.
	asBefore := op.NoUndoReason == "" && op.UndoneAt.IsZero() && old.hasHash(op.BeforeHash)
	why := undoObstacle(p, op, old, func(string) bool { return false })
	switch {
	case asBefore && old.info == nil && op.CreatedFolder != "":
		err = removeFolders(p, op)
	case asBefore:
	case why != "" && (!force || op.NoUndoReason != "" || !op.UndoneAt.IsZero()):
		return tool.RefusePath(tool.KindRejected, "the change %d/%s of %s cannot be undone: %s", op.Run, op.Batch, (&files{roots: roots}).relToWorkdir(op.Path), why)
	case op.Type == fileop.MoveAway:
		err = moveBack(ctx, log, source, p, op)
	case op.Type == fileop.DirDelete:
		if err = owner.MakeFoldersIn(p.Root, p.Rel); err == nil {
			err = p.Chmod(p.Rel, fs.FileMode(op.Mode))
		}
	case op.BeforeHash == "":
		err = removeCreated(p, old, op)
	default:
		err = restore(ctx, log, p, old, op)
	}
	if err != nil {
		return p.Explain(err)
	}
	if err := log.MarkUndone(ctx, op.ID); err != nil {
		return &hostError{err}
	}

	return nil
}

// removeCreated removes a created file and the empty folders that were created for it.
func removeCreated(p *tool.FileHandle, old fileState, op fileop.Op) error {
	if !old.unchanged(p) {
		return changedMeanwhile(op.Path)
	}
	if err := p.Remove(p.Rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return removeFolders(p, op)
}

// removeFolders removes the folders that were created for a file, if they are empty.
func removeFolders(p *tool.FileHandle, op fileop.Op) error {
	if op.CreatedFolder == "" {
		return atomicfile.SyncFolderIn(p.Root, filepath.Dir(p.Rel))
	}

	last, err := filepath.Rel(p.Name(), op.CreatedFolder)
	if err != nil {
		return err
	}

	folder := filepath.Dir(p.Rel)
	if _, err := p.Lstat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for ; folder != "." && len(folder) >= len(last); folder = filepath.Dir(folder) {
		if p.Remove(folder) != nil {
			break // the folder is not empty, so its parents are not either
		}
	}

	// The folder that lost the last entry is synced.
	return atomicfile.SyncFolderIn(p.Root, folder)
}

// restore writes the content and the permissions before the change.
func restore(ctx context.Context, log *fileop.FileOps, p *tool.FileHandle, old fileState, op fileop.Op) error {
	text, err := log.Before(ctx, op.ID)
	if err != nil {
		return &hostError{err}
	}

	file, err := writeTemp(p, string(text), fs.FileMode(op.Mode))
	if err != nil {
		return err
	}
	if err := p.Announce(ctx, file.TempName()); err != nil {
		return errors.Join(notAnnounced(p, err), file.Abort())
	}

	return commit(p, op.Path, file, old)
}

// changedError reports that a file was not replaced because it was changed meanwhile.
type changedError struct{ error }

func (e *changedError) Unwrap() error { return e.error }

func changedMeanwhile(shown string) error {
	return &changedError{tool.RefusePath(tool.KindExecutionError, "%s was changed meanwhile, and was left as it is now; read it again", shown)}
}

// byCommand reports whether a change may affect a binary file.
func byCommand(op fileop.Op) bool {
	switch op.Type {
	case fileop.Move, fileop.Copy, fileop.Delete, fileop.DirCreate, fileop.Program, fileop.MoveAway, fileop.DirDelete:
		return true
	}
	return false
}

// folderHasOther reports whether a folder holds entries for which gone is false.
func folderHasOther(p *tool.FileHandle, rel string, gone func(path string) bool) (bool, error) {
	dir, err := p.Open(rel)
	if err != nil {
		return false, p.Explain(err)
	}
	defer dir.Close()

	entries, err := dir.ReadDir(-1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, p.Explain(err)
	}

	for _, e := range entries {
		within := filepath.Join(rel, e.Name())
		if !gone(filepath.Join(p.Name(), within)) {
			return true, nil
		}

		if e.IsDir() {
			if more, err := folderHasOther(p, within, gone); more || err != nil {
				return more, err
			}
		}
	}

	return false, nil
}

// Undone is a change of a file by a run. Why is the reason why it cannot be undone, or "".
type Undone struct {
	fileop.Op
	Why string
}

// UndoRun reverts all changes of files by a run, newest first. Without force it reverts all or
// none: a file that was changed since prevents the undo. If dry is set, it only reports the
// obstacles. It skips changes that are already undone.
func UndoRun(ctx context.Context, log *fileop.FileOps, locks *tool.Locks, b nofollow.UntrustedDirs, run int64, force, dry bool) (out []Undone, done bool, err error) {
	ops, err := log.List(ctx, fileop.Filter{Run: run, Limit: -1})
	if err != nil {
		return nil, false, err
	}

	// The undo is planned first, because the disk shows only the newest state. later holds the hash
	// of each path after the newer changes are undone.
	free, later := true, map[string]string{}
	for _, op := range ops {
		if !op.UndoneAt.IsZero() {
			continue
		}

		u := Undone{op, ""}
		switch hash, known := later[op.Path]; {
		case op.NoUndoReason != "":
			u.Why = op.NoUndoReason
		case known && hash != op.AfterHash && hash != op.BeforeHash:
			u.Why = "the file was changed between two changes of the run"
		case !known:
			u.Why = obstacleNow(b, op, func(path string) bool { hash, ok := later[path]; return ok && hash == "" })
		}

		if u.Why != "" {
			free = false
		}

		later[op.Path] = op.BeforeHash
		for folder := filepath.Dir(op.Path); op.CreatedFolder != "" && len(folder) >= len(op.CreatedFolder); folder = filepath.Dir(folder) {
			later[folder] = "" // undo also removes the folders created for the file
		}

		out = append(out, u)
	}
	if dry || !free && !force {
		return out, false, nil
	}

	done = true
	for i, u := range out {
		if u.NoUndoReason != "" { // the old content was not stored
			done = false
			continue
		}

		if err := Undo(ctx, log, locks, b, u.Op, force); err != nil {
			return out, false, fmt.Errorf("%d of the %d changes of files by run %d were undone, then: %w", i, len(out), run, err)
		}
		out[i].Why = ""
	}

	return out, done, nil
}

// obstacleNow returns the reason why the newest change of a file cannot be undone. It returns ""
// for a change that was not made.
func obstacleNow(b nofollow.UntrustedDirs, op fileop.Op, gone func(path string) bool) string {
	roots, err := tool.NewRootsWithin(b, op.Root, nil)
	if err != nil {
		return fmt.Sprintf("the folder %s is gone", op.Root)
	}

	p, now, err := openChanged(roots, op)
	if err != nil {
		return err.Error()
	}
	defer p.Close()

	if now.hasHash(op.BeforeHash) {
		return ""
	}

	return undoObstacle(p, op, now, gone)
}
