package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rouse/agent/tool"
	"rouse/internal/atomicfile"
	"rouse/internal/ledger/fileop"
	"rouse/internal/owner"
	"rouse/internal/text"
)

// Limits of one call that moves, copies or deletes.
const (
	maxItems     = 1000     // files and folders
	maxItemBytes = 4 << 30  // all files in total; each is read and hashed
	maxKept      = 32 << 20 // one file that is deleted or overwritten
	maxBatch     = 16 << 20 // contents recorded in one transaction
)

// item is a file or folder that a call moves, copies or deletes.
type item struct {
	rel  string // relative to the path of the call; "." is that path
	info fs.FileInfo
	hash string // hash of the content; folderHash for a folder
}

// itemsAt lists and hashes the file or folder at a path, each folder before its contents. It opens
// each file by its own path, so that a forbidden file stays forbidden within a folder.
func (f *files) itemsAt(ctx context.Context, path string, write bool) (out []item, size int64, err error) {
	add := func(rel string) error {
		shown := filepath.Join(path, rel)
		if len(out) == maxItems {
			return tooMany(path, fmt.Sprintf("holds more than %d files and folders", maxItems))
		}

		p, err := f.roots.Resolve(shown, write)
		if err != nil {
			return err
		}
		defer p.Close()

		info, err := p.Lstat(p.Rel)
		switch {
		case err != nil:
			return p.Explain(err)
		case p.IsHidden(p.Rel) || write && f.roots.HasBelow(filepath.Join(p.Name(), p.Rel)):
			return tool.RefusePath(tool.KindRejected, "%s is or contains a folder with its own grant or a folder of rouse; it cannot be moved or deleted", shown)
		case info.Mode()&fs.ModeSymlink != 0:
			return tool.RefusePath(tool.KindRejected, "%s is a link; name the file itself", shown)
		case info.Mode().IsRegular() && size+info.Size() > maxItemBytes:
			return tooMany(path, "has more than "+text.Size(maxItemBytes))
		}

		now, err := hashAny(ctx, p)
		if err != nil {
			return p.Explain(err)
		}
		if now.info == nil || !os.SameFile(now.info, info) {
			return changedMeanwhile(shown)
		}
		if !now.info.IsDir() {
			size += now.info.Size()
		}
		out = append(out, item{rel, now.info, now.sum})
		return nil
	}

	if err := add("."); err != nil || !out[0].info.IsDir() {
		return out, size, err
	}

	top, err := f.roots.Resolve(path, write)
	if err != nil {
		return nil, 0, err
	}
	defer top.Close()

	begin := filepath.ToSlash(top.Rel)
	err = fs.WalkDir(top.FS(), begin, func(at string, _ fs.DirEntry, err error) error {
		if err != nil || at == begin {
			return err
		}
		rel, err := filepath.Rel(top.Rel, filepath.FromSlash(at))
		if err != nil {
			return err
		}
		return add(rel)
	})
	return out, size, err
}

func tooMany(path, why string) error {
	return tool.RefusePath(tool.KindRejected, "%s %s; do it in parts", path, why)
}

// rename renames the file of one handle to the name of another. It fails if the file differs from
// info. Both handles must hold their folders open.
func rename(from, to *tool.FileHandle, info fs.FileInfo, replace bool) error {
	source, target := atomicfile.Name{Root: from.Root, Name: from.Rel}, atomicfile.Name{Root: to.Root, Name: to.Rel}
	move := atomicfile.MoveNew
	if replace {
		move = atomicfile.MoveOver
	}
	if now, err := from.Lstat(from.Rel); err != nil || !sameState(now, info) {
		return changedMeanwhile(source.Path())
	}
	if err := move(source, target); err != nil {
		return err
	}

	// No system call renames a file only if it is unchanged, so the file is checked again.
	if now, err := to.Lstat(to.Rel); err != nil || !os.SameFile(now, info) {
		return errors.Join(changedMeanwhile(source.Path()), atomicfile.MoveNew(target, source))
	}
	return errors.Join(atomicfile.SyncFolderIn(to.Root, "."), atomicfile.SyncFolderIn(from.Root, "."))
}

// sameState reports whether two infos describe the same, unchanged file.
func sameState(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && (a.IsDir() || a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()))
}

// copyInto copies a file to the path of a handle and verifies the copy. It calls ready with the
// temporary name before it renames the copy.
func copyInto(ctx context.Context, from, to *tool.FileHandle, one item, replace bool, ready func(temp string) error) error {
	in, err := from.OpenChecked()
	if err != nil {
		return err
	}
	defer in.Close()

	out, err := atomicfile.CreateIn(to.Root, to.Rel, 0o600)
	if err != nil {
		return err
	}
	if err := fill(ctx, out, in, one); err != nil {
		return errors.Join(err, out.Abort())
	}
	if err := ready(out.TempName()); err != nil {
		return errors.Join(err, out.Abort())
	}
	if replace {
		return out.Commit()
	}
	return out.CommitNew()
}

// fill copies the content and the mode of an item. It fails if the content has another hash.
func fill(ctx context.Context, out *atomicfile.File, in *os.File, one item) error {
	sum, err := copyHashed(ctx, out, in)
	if err == nil && sum != one.hash {
		err = changedMeanwhile(in.Name())
	}
	return errors.Join(err, out.Chmod(one.info.Mode().Perm()), out.Close())
}

// copyFolder copies a folder to a temporary name next to the handle's path. It returns that name.
func (f *files) copyFolder(ctx context.Context, path string, to *tool.FileHandle, items []item) (temp string, err error) {
	temp = atomicfile.TempName(to.Rel)
	defer func() {
		if err != nil {
			err = errors.Join(err, to.RemoveAll(temp))
		}
	}()

	for _, one := range items {
		at := filepath.Join(temp, one.rel)
		if one.info.IsDir() {
			if err := to.Mkdir(at, 0o700); err != nil {
				return temp, err
			}
			continue
		}

		if err := f.copyItem(ctx, filepath.Join(path, one.rel), to, at, one); err != nil {
			return temp, err
		}
	}
	for i := len(items) - 1; i >= 0; i-- { // last, because the folder may become read-only
		if one := items[i]; one.info.IsDir() {
			if err := to.Chmod(filepath.Join(temp, one.rel), one.info.Mode().Perm()); err != nil {
				return temp, err
			}
		}
	}
	return temp, nil
}

// copyItem copies one file of a folder.
func (f *files) copyItem(ctx context.Context, path string, to *tool.FileHandle, at string, one item) error {
	from, err := f.roots.Resolve(path, false)
	if err != nil {
		return err
	}
	defer from.Close()
	in, err := from.OpenChecked()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := atomicfile.CreateIn(to.Root, at, 0o600)
	if err != nil {
		return err
	}
	if err := fill(ctx, out, in, one); err != nil {
		return errors.Join(err, out.Abort())
	}
	return out.Commit()
}

// removeItems deletes files and folders, innermost first, and stops at one that was changed. It
// returns the number of deleted items.
func (f *files) removeItems(path string, items []item) (int, error) {
	for i := len(items) - 1; i >= 0; i-- {
		if err := f.removeItem(filepath.Join(path, items[i].rel), items[i]); err != nil {
			return len(items) - 1 - i, err
		}
	}
	return len(items), nil
}

func (f *files) removeItem(shown string, one item) error {
	p, err := f.roots.Resolve(shown, true)
	if err != nil {
		return err
	}
	defer p.Close()

	if err := p.Hold(); err != nil {
		return err
	}
	now, err := p.Lstat(p.Rel)
	if err != nil {
		return p.Explain(err)
	}
	if !sameState(now, one.info) {
		return changedMeanwhile(shown)
	}
	if err := p.Remove(p.Rel); err != nil {
		return p.Explain(err)
	}
	return atomicfile.SyncFolderIn(p.Root, ".")
}

// recorded holds the changes that an earlier attempt of a call recorded.
type recorded struct {
	ops []fileop.Op // changes not yet undone, newest first
	all bool        // true if all changes were made
}

// earlier returns the changes that an earlier attempt of the call recorded. After a crash, only
// some of them may have been made.
func (f *files) earlier(ctx context.Context, in tool.Invocation) (r recorded, err error) {
	ops, err := f.log.List(ctx, fileop.Filter{Run: in.Run, Batch: in.Key, Limit: -1})
	if err != nil {
		return r, &hostError{err}
	}

	r.all = true
	for _, op := range ops {
		if !op.UndoneAt.IsZero() {
			continue
		}
		r.ops = append(r.ops, op)
		now, err := stateOf(f.roots, op)
		if err != nil {
			return r, err
		}
		r.all = r.all && now.hasHash(op.AfterHash)
	}
	return r, nil
}

// discard deletes the records of changes that were not made.
func (f *files) discard(ctx context.Context, ops []fileop.Op) error {
	for _, op := range ops {
		if err := f.log.Delete(context.WithoutCancel(ctx), op.ID); err != nil {
			return &hostError{err}
		}
	}
	return nil
}

// missingFolders returns the changes that create the missing folders of a path, outermost first.
func missingFolders(p *tool.FileHandle, rel string) (ops []fileop.Op) {
	for folder := rel; folder != "."; folder = filepath.Dir(folder) {
		if _, err := p.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		ops = append([]fileop.Op{{Type: fileop.DirCreate, Root: p.Name(), Path: filepath.Join(p.Name(), folder), AfterHash: folderHash}}, ops...)
	}
	return ops
}

// makeFolders creates the parent folders of the handle's path and holds the last one open.
func makeFolders(p *tool.FileHandle) error {
	if folder := filepath.Dir(p.Rel); folder != "." {
		if err := owner.MakeFoldersIn(p.Root, folder); err != nil {
			return p.Explain(err)
		}
	}
	if err := p.Hold(); err != nil {
		return p.Explain(err)
	}
	return nil
}
