package after

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
	"rouse/watcher/fsys"
)

// maxName is the maximum length of a name on most file systems, in bytes.
const maxName = 255

// numbered returns the i-th name to try. From the second name on, it contains a number: a.csv,
// a-2.csv, …
func numbered(name string, i int) string {
	if i == 0 {
		return name
	}

	// filepath.Ext returns all of .profile, so its number goes at the end.
	ext := filepath.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	if stem == "" {
		stem, ext = name, ""
	}

	ext = fmt.Sprintf("-%d%s", i+1, ext)

	return text.HeadBytes(stem, maxName-len(ext)) + ext
}

// move moves a file with the stamp st into a folder, under its name or the first free numbered
// name. It never replaces a file there. It returns ErrChanged if another file has replaced this one
// in the meantime.
func (m *Mover) move(ctx context.Context, file fsys.Handle, st fsys.Stamp, dir *os.Root, name string) (string, error) {
	for i := range 10_000 {
		dest := fsys.Handle{Root: dir, Name: numbered(name, i)}
		if m.isCopy(ctx, file, st, dest) {
			return dest.Path(), file.Remove()
		}

		// The stamp is checked only after the rename, because no system can rename a file on the
		// condition that it is unchanged.
		err := renameNew(file, dest)
		if errors.Is(err, syscall.EXDEV) {
			err = copyAcross(ctx, file, st, dest)
		} else if err == nil {
			err = undoRenameUnless(st, file, dest)
		}
		if !errors.Is(err, fs.ErrExist) {
			return dest.Path(), err
		}
	}
	return "", fmt.Errorf("%s holds ten thousand files of the name %s; clear it out", dir.Name(), name)
}

// isCopy reports whether dest is a copy of a file, left by an interrupted move across file systems.
func (m *Mover) isCopy(ctx context.Context, file fsys.Handle, st fsys.Stamp, dest fsys.Handle) bool {
	info, err := dest.Lstat()
	if err != nil {
		return false
	}

	// On one device files are renamed, not copied, so an equal file there is a different one.
	made := fsys.StampOf(info)
	if made.Device == st.Device || made.Size != st.Size || made.Modified != st.Modified {
		return false
	}

	one, err1 := m.Hashes.Of(ctx, file, st)
	two, err2 := m.Hashes.Of(ctx, dest, made)
	return err1 == nil && err2 == nil && one == two
}

// undoRenameUnless undoes a rename that moved a file without the stamp st. If the old name has been
// taken since, the file gets a numbered name in the same folder.
func undoRenameUnless(st fsys.Stamp, file, dest fsys.Handle) error {
	info, err := dest.Lstat()
	if err != nil || fsys.StampOf(info).Same(st) {
		return err
	}

	for i := range 100 {
		err = renameNew(dest, file.Sibling(numbered(filepath.Base(file.Name), i)))
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return errors.Join(fsys.ErrChanged, err)
}

// deleteFile deletes a file with the stamp st, but not another file that has replaced it. Therefore
// it first renames the file to aside and checks it under that name.
func deleteFile(file fsys.Handle, st fsys.Stamp, aside fsys.Handle) error {
	if file.Name != aside.Name { // equal after a crash between the two steps
		if err := renameNew(file, aside); err != nil {
			return err
		}
		if err := undoRenameUnless(st, file, aside); err != nil {
			return err
		}
	}
	return aside.Remove()
}

// copyAcross moves a file to another file system. It writes the copy under a hidden name, syncs and
// renames it, and only then removes the original. Unlike a file of package atomicfile, the copy has
// the same hidden name on each try and keeps the original's time.
func copyAcross(ctx context.Context, file fsys.Handle, st fsys.Stamp, dest fsys.Handle) error {
	in, err := file.Open()
	if err != nil {
		return err
	}
	defer in.Close()

	// An interrupted earlier try may have left a partial copy under this name.
	part := dest.Sibling(fmt.Sprintf(".moving-%x-%x", st.Device, st.Inode))
	if err := part.Remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	out, err := part.Root.OpenFile(part.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("nothing can be written to %s: %w", part.Root.Name(), err)
	}

	mode := fs.FileMode(0o644)
	if info, err := in.Stat(); err == nil {
		mode = info.Mode().Perm()
	}

	_, err = io.Copy(out, fsys.ContextReader(ctx, in))
	err = errors.Join(err, out.Chmod(mode), out.Sync(), out.Close())
	if err == nil {
		modified := time.Unix(0, st.Modified)
		err = errors.Join(part.Root.Chtimes(part.Name, modified, modified), renameNew(part, dest))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copying to %s: %w", dest.Path(), err), part.Remove())
	}
	if err := atomicfile.SyncFolderIn(dest.Root, filepath.Dir(dest.Name)); err != nil {
		return err
	}

	// The original may have been written to during the copy. The new content has no run yet and
	// must not be removed.
	info, err := file.Lstat()
	if err != nil || !fsys.StampOf(info).Same(st) {
		return errors.Join(fsys.ErrChanged, dest.Remove())
	}

	in.Close() // Windows cannot remove an open file
	return file.Remove()
}

// renameNew renames a file. It returns fs.ErrExist if the new name is taken.
func renameNew(file, dest fsys.Handle) error {
	return atomicfile.MoveNew(atomicfile.Name{Root: file.Root, Name: file.Name}, atomicfile.Name{Root: dest.Root, Name: dest.Name})
}
