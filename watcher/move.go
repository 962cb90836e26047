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
	"unicode/utf8"
)

// maxName is how long a name may be, in bytes, on most file systems.
const maxName = 255

// numbered is name in dir, the second and later ones with a number: a.csv, a-2.csv, …
func numbered(dir, name string, i int) string {
	if i == 0 {
		return filepath.Join(dir, name)
	}
	ext := filepath.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	if stem == "" {
		stem, ext = name, ""
	}
	ext = fmt.Sprintf("-%d%s", i+1, ext)
	for len(stem)+len(ext) > maxName && stem != "" {
		_, size := utf8.DecodeLastRuneInString(stem)
		stem = stem[:len(stem)-size]
	}
	return filepath.Join(dir, stem+ext)
}

// move gives a file that looks like st the first free name in a folder. It never takes the
// place of another file, and never takes away one that came to path meanwhile: errChanged.
func (w *Watcher) move(ctx context.Context, path string, st stamp, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("the folder %s cannot be made: %w", dir, err)
	}
	for i := range 10_000 {
		dest := numbered(dir, filepath.Base(path), i)
		if w.isCopy(ctx, path, st, dest) {
			return dest, os.Remove(path)
		}
		err := renameNew(path, dest)
		if errors.Is(err, syscall.EXDEV) {
			err = copyAway(ctx, path, st, dest)
		} else if err == nil {
			err = putBackUnless(st, path, dest)
		}
		if !errors.Is(err, fs.ErrExist) {
			return dest, err
		}
	}
	return "", fmt.Errorf("%s holds ten thousand files of the name %s; clear it out", dir, filepath.Base(path))
}

// isCopy says whether an interrupted move across file systems had made dest of path.
func (w *Watcher) isCopy(ctx context.Context, path string, st stamp, dest string) bool {
	info, err := os.Lstat(dest)
	if err != nil {
		return false
	}
	made := stampOf(info)
	if made.device == st.device || made.size != st.size || made.modified != st.modified {
		return false
	}
	one, err1 := w.hashes.of(ctx, path, st)
	two, err2 := w.hashes.of(ctx, dest, made)
	return err1 == nil && err2 == nil && one == two
}

// putBackUnless undoes a rename that caught another file than the one that looks like st.
func putBackUnless(st stamp, path, dest string) error {
	info, err := os.Lstat(dest)
	if err != nil || stampOf(info).same(st) {
		return err
	}
	for i := range 100 {
		err = renameNew(dest, numbered(filepath.Dir(path), filepath.Base(path), i))
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return errors.Join(errChanged, err)
}

// copyAway moves a file to another file system: it is copied under a hidden name, made
// durable, given its name, and only then removed.
func copyAway(ctx context.Context, path string, st stamp, dest string) error {
	in, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	dir := filepath.Dir(dest)
	out, err := os.CreateTemp(dir, ".moving-*")
	if err != nil {
		return fmt.Errorf("nothing can be written to %s: %w", dir, err)
	}
	mode := fs.FileMode(0o644)
	if info, err := in.Stat(); err == nil {
		mode = info.Mode().Perm()
	}
	_, err = io.Copy(out, reader{ctx, in})
	err = errors.Join(err, out.Chmod(mode), out.Sync(), out.Close())
	if err == nil {
		modified := time.Unix(0, st.modified)
		err = errors.Join(os.Chtimes(out.Name(), modified, modified), renameNew(out.Name(), dest))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copying to %s: %w", dest, err), os.Remove(out.Name()))
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil || !stampOf(info).same(st) {
		return errors.Join(errChanged, os.Remove(dest))
	}
	in.Close() // Windows removes no file that is open
	return os.Remove(path)
}

// reserveAndRename gives a file a name that is free, where the system has no rename that
// refuses to replace.
func reserveAndRename(path, dest string) error {
	place, err := os.OpenFile(dest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	place.Close()
	if err := os.Rename(path, dest); err != nil {
		return errors.Join(err, os.Remove(dest))
	}
	return nil
}
