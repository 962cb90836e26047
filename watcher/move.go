package watcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rouse/internal/atomicfile"
	"rouse/internal/text"
)

// maxName is how long a name may be, in bytes, on most file systems.
const maxName = 255

// numbered is a name, the second and later ones with a number: a.csv, a-2.csv, …
func numbered(name string, i int) string {
	if i == 0 {
		return name
	}

	ext := filepath.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	if stem == "" {
		stem, ext = name, ""
	}

	ext = fmt.Sprintf("-%d%s", i+1, ext)

	return text.HeadBytes(stem, maxName-len(ext)) + ext
}

// move gives a file that looks like st a name in a folder, or the first free one after it. It
// never takes the place of another file, and never takes away one that came to its place
// meanwhile: errChanged.
func (w *Watcher) move(ctx context.Context, file fileHandle, st stamp, dir *os.Root, name string) (string, error) {
	for i := range 10_000 {
		dest := fileHandle{dir, numbered(name, i)}
		if w.isCopy(ctx, file, st, dest) {
			return dest.path(), file.remove()
		}

		err := renameNew(file, dest)
		if errors.Is(err, syscall.EXDEV) {
			err = copyAcross(ctx, file, st, dest)
		} else if err == nil {
			err = undoRenameUnless(st, file, dest)
		}
		if !errors.Is(err, fs.ErrExist) {
			return dest.path(), err
		}
	}
	return "", fmt.Errorf("%s holds ten thousand files of the name %s; clear it out", dir.Name(), name)
}

// isCopy says whether an interrupted move across file systems had made dest of a file.
func (w *Watcher) isCopy(ctx context.Context, file fileHandle, st stamp, dest fileHandle) bool {
	info, err := dest.lstat()
	if err != nil {
		return false
	}

	made := stampOf(info)
	if made.device == st.device || made.size != st.size || made.modified != st.modified {
		return false
	}

	one, err1 := w.hashes.of(ctx, file, st)
	two, err2 := w.hashes.of(ctx, dest, made)
	return err1 == nil && err2 == nil && one == two
}

// undoRenameUnless undoes a rename that caught another file than the one that looks like st.
func undoRenameUnless(st stamp, file, dest fileHandle) error {
	info, err := dest.lstat()
	if err != nil || stampOf(info).same(st) {
		return err
	}

	for i := range 100 {
		err = renameNew(dest, file.sibling(numbered(filepath.Base(file.name), i)))
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return errors.Join(errChanged, err)
}

// deleteFile deletes a file that looks like st, and no other that came to its place meanwhile. It
// goes by another name, which is that of aside.
func deleteFile(file fileHandle, st stamp, aside fileHandle) error {
	if file.name != aside.name {
		if err := renameNew(file, aside); err != nil {
			return err
		}
		if err := undoRenameUnless(st, file, aside); err != nil {
			return err
		}
	}
	return aside.remove()
}

// copyAcross moves a file to another file system: it is copied under a hidden name, made
// durable, given its name, and only then removed. Unlike a file that is written whole, the copy
// has the same hidden name at each try, and its time is that of the original.
func copyAcross(ctx context.Context, file fileHandle, st stamp, dest fileHandle) error {
	in, err := file.open()
	if err != nil {
		return err
	}
	defer in.Close()

	// The name is that of an earlier try, which did not come to its end.
	part := dest.sibling(fmt.Sprintf(".moving-%x-%x", st.device, st.inode))
	if err := part.remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	out, err := part.root.OpenFile(part.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("nothing can be written to %s: %w", part.root.Name(), err)
	}

	mode := fs.FileMode(0o644)
	if info, err := in.Stat(); err == nil {
		mode = info.Mode().Perm()
	}

	_, err = io.Copy(out, ctxReader{ctx, in})
	err = errors.Join(err, out.Chmod(mode), out.Sync(), out.Close())
	if err == nil {
		modified := time.Unix(0, st.modified)
		err = errors.Join(part.root.Chtimes(part.name, modified, modified), renameNew(part, dest))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copying to %s: %w", dest.path(), err), part.remove())
	}
	if err := atomicfile.SyncIn(dest.root, filepath.Dir(dest.name)); err != nil {
		return err
	}

	info, err := file.lstat()
	if err != nil || !stampOf(info).same(st) {
		return errors.Join(errChanged, dest.remove())
	}

	in.Close() // Windows removes no file that is open
	return file.remove()
}

// reserveAndRename gives a file a name that is free, where the system has no rename that
// refuses to replace.
func reserveAndRename(file, dest fileHandle) error {
	place, err := dest.root.OpenFile(dest.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	place.Close()
	if err := os.Rename(file.path(), dest.path()); err != nil {
		return errors.Join(err, dest.remove())
	}
	return nil
}
