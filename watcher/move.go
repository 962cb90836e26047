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

// numbered is the i-th name to try, with a number from the second on: a.csv, a-2.csv, …
func numbered(name string, i int) string {
	if i == 0 {
		return name
	}

	// All of .profile is an extension to filepath.Ext: its number goes at the end.
	ext := filepath.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	if stem == "" {
		stem, ext = name, ""
	}

	ext = fmt.Sprintf("-%d%s", i+1, ext)

	return text.HeadBytes(stem, maxName-len(ext)) + ext
}

// move moves a file that looks like st into a folder, under its name or the first free one
// after it. It never replaces a file there, and never moves another file that took the place
// of this one meanwhile: errChanged.
func (w *Watcher) move(ctx context.Context, file fileHandle, st stamp, dir *os.Root, name string) (string, error) {
	for i := range 10_000 {
		dest := fileHandle{dir, numbered(name, i)}
		if w.isCopy(ctx, file, st, dest) {
			return dest.path(), file.remove()
		}

		// Checked only after the rename: no system renames a file on the condition that it is
		// still the same one.
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

// isCopy says whether dest is the copy of a file that an interrupted move across file systems
// left behind.
func (w *Watcher) isCopy(ctx context.Context, file fileHandle, st stamp, dest fileHandle) bool {
	info, err := dest.lstat()
	if err != nil {
		return false
	}

	// On one device files are renamed, not copied: an equal file there is another one.
	made := stampOf(info)
	if made.device == st.device || made.size != st.size || made.modified != st.modified {
		return false
	}

	one, err1 := w.hashes.of(ctx, file, st)
	two, err2 := w.hashes.of(ctx, dest, made)
	return err1 == nil && err2 == nil && one == two
}

// undoRenameUnless undoes a rename that caught another file than the one that looks like st.
// Should its old name be taken again by now, it gets a numbered one beside that.
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

// deleteFile deletes a file that looks like st, and no other that took its place meanwhile.
// Therefore it is renamed to aside first, and checked under that name.
func deleteFile(file fileHandle, st stamp, aside fileHandle) error {
	if file.name != aside.name { // equal after a crash between the two steps
		if err := renameNew(file, aside); err != nil {
			return err
		}
		if err := undoRenameUnless(st, file, aside); err != nil {
			return err
		}
	}
	return aside.remove()
}

// copyAcross moves a file to another file system: the copy is written under a hidden name,
// synced, renamed, and only then is the original removed. Unlike a file of package atomicfile
// the copy has the same hidden name at each try, and the time of the original.
func copyAcross(ctx context.Context, file fileHandle, st stamp, dest fileHandle) error {
	in, err := file.open()
	if err != nil {
		return err
	}
	defer in.Close()

	// An earlier try that was interrupted has left a part under this name.
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
	if err := atomicfile.SyncFolderIn(dest.root, filepath.Dir(dest.name)); err != nil {
		return err
	}

	// Written to during the copy: that content has no run yet and must not be removed.
	info, err := file.lstat()
	if err != nil || !stampOf(info).same(st) {
		return errors.Join(errChanged, dest.remove())
	}

	in.Close() // Windows does not remove an open file
	return file.remove()
}

// renameNew renames a file. It returns fs.ErrExist if the new name is taken.
func renameNew(file, dest fileHandle) error {
	return atomicfile.MoveNew(atomicfile.Name{Root: file.root, Name: file.name}, atomicfile.Name{Root: dest.root, Name: dest.name})
}
