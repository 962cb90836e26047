package tool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rouse/internal/atomicfile"
	"rouse/internal/hardlink"
	"rouse/internal/ledger/label"
	"rouse/internal/owner"
)

// FileHandle refers to a path below an opened root. The file may not exist yet. The caller must
// close the handle.
type FileHandle struct {
	*os.Root
	Rel string // path within the root

	roots     *Roots
	grant     *root
	shown     string // path as given by the caller, for messages
	write     bool
	inWorkdir bool
}

// refuse returns a refusal with a message that begins with the path.
func (p *FileHandle) refuse(kind Kind, format string, args ...any) error {
	return RefusePath(kind, "%s %s", p.shown, fmt.Sprintf(format, args...))
}

// InWorkdir reports whether the path lies in the workdir.
func (p *FileHandle) InWorkdir() bool { return p.inWorkdir }

// OpenChecked opens the file or folder for reading. It follows a symbolic link only if the handle
// is for reading and the target lies in the granted folder. It refuses a file with several hard
// links, unless the handle is for reading and the file lies in the workdir. The caller must close
// the file.
func (p *FileHandle) OpenChecked() (*os.File, error) {
	info, err := p.Lstat(p.Rel)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		// For writing, a rename would replace the link. For a granted file, a link could extend the
		// grant to another file.
		if p.write || p.grant.File {
			return nil, p.refuse(KindRejected, "is a link; name the file itself")
		}
		info, err = p.Stat(p.Rel)
	}
	if err != nil {
		return nil, p.Explain(err)
	}

	// This is checked before opening, because opening a pipe blocks until it has a writer.
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, p.refuse(KindRejected, "is neither a file nor a folder")
	}

	f, err := p.Open(p.Rel)
	if err != nil {
		return nil, p.Explain(err)
	}

	err = p.checkOpened(f, info)
	if err == nil {
		err = p.checkResolved(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// checkOpened returns an error if the opened file is not the inspected one, or if it has several
// hard links.
func (p *FileHandle) checkOpened(f *os.File, expected fs.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return p.Explain(err)
	}
	if !os.SameFile(info, expected) {
		return p.refuse(KindExecutionError, "was replaced while it was opened; try again")
	}

	// os.Root cannot detect a hard link to a file outside of the root, and the other names of a
	// file cannot be found. Only reading in the workdir is exempt.
	if !info.Mode().IsRegular() || (p.inWorkdir && !p.write) {
		return nil
	}

	n, err := hardlink.Count(f)
	if err != nil {
		return p.Explain(err)
	}
	if n > 1 {
		return p.refuse(KindRejected, "is a hard link: its other name may lie outside of %s; copy the file instead", p.roots.allowedRoots(p.write))
	}

	return nil
}

// checkResolved refuses a secret or masked file that was opened through a link. Resolve has checked
// the given name, and checkResolved checks the resolved one.
func (p *FileHandle) checkResolved(f *os.File) error {
	if p.grant.File { // the owner granted this file, even if it is a secret
		return nil
	}

	actual, err := filepath.EvalSymlinks(filepath.Join(p.Name(), p.Rel))
	if err != nil {
		return p.Explain(err)
	}

	opened, err := f.Stat()
	if err != nil {
		return p.Explain(err)
	}

	// EvalSymlinks works outside of the os.Root, so a swapped link can mislead it. Its result is
	// valid only if it is the open file.
	named, err := os.Stat(actual)
	if err != nil || !os.SameFile(named, opened) {
		return p.refuse(KindExecutionError, "was replaced while it was opened; try again")
	}

	root, err := filepath.EvalSymlinks(p.Name())
	if err != nil {
		return p.Explain(err)
	}
	if rel, ok := below(root, actual); !ok || IsSecretPath(rel) {
		return secretError(p.shown)
	}
	if p.roots.isMasked(p.grant, actual, p.write) {
		return maskError(p.shown)
	}

	return nil
}

// CheckWrite returns an error if the file must not be written: with links resolved, it is a secret,
// is masked or belongs to git. The folder must exist.
func (p *FileHandle) CheckWrite() error {
	_, err := p.checkFolder()
	return err
}
func (p *FileHandle) checkFolder() (fs.FileInfo, error) {
	root, err := filepath.EvalSymlinks(p.Name())
	if err != nil {
		return nil, p.Explain(err)
	}

	// Only the folder is resolved: the file may not exist yet, and the rename does not follow a
	// link.
	folder, err := filepath.EvalSymlinks(filepath.Join(root, filepath.Dir(p.Rel)))
	if err != nil {
		return nil, p.Explain(err)
	}

	within, ok := below(root, folder)
	within = filepath.Join(within, filepath.Base(p.Rel))
	if !p.grant.File && (!ok || IsSecretPath(within)) {
		return nil, secretError(p.shown)
	}
	if p.roots.isMasked(p.grant, filepath.Join(root, within), true) {
		return nil, maskError(p.shown)
	}
	if !p.grant.File {
		if why := gitObstacle(root, within); why != "" {
			return nil, gitError(p.shown, why)
		}
	}

	info, err := os.Lstat(folder)
	if err != nil {
		return nil, p.Explain(err)
	}
	return info, nil
}

// Create creates the folders of the file, calls Hold, and starts an atomic write of the file.
func (p *FileHandle) Create() (*atomicfile.File, error) {
	if folder := filepath.Dir(p.Rel); folder != "." {
		if err := owner.MakeFoldersIn(p.Root, folder); err != nil {
			return nil, err
		}
	}
	if err := p.Hold(); err != nil {
		return nil, err
	}
	return atomicfile.CreateIn(p.Root, p.Rel, 0o644)
}

// Hold opens the folder of the file, checks it like CheckWrite, and makes it the root of the
// handle. A link that later replaces the folder cannot redirect a rename.
func (p *FileHandle) Hold() error {
	in, err := p.OpenRoot(filepath.Dir(p.Rel))
	if err != nil {
		return err
	}

	opened, err := in.Stat(".")
	if err == nil {
		var checked fs.FileInfo
		if checked, err = p.checkFolder(); err == nil && !os.SameFile(opened, checked) {
			err = p.refuse(KindExecutionError, "was moved to another folder meanwhile; try again")
		}
	}
	if err != nil {
		return errors.Join(err, in.Close())
	}

	old := p.Root
	p.Root, p.Rel = in, filepath.Base(p.Rel)
	return old.Close()
}

func secretError(shown string) error {
	return RefusePath(KindRejected, "%s holds secrets by its name, and is neither read nor written; its owner can grant it by that name, under grants: read", shown)
}

// IsHidden reports whether a path within the root may not be read because it is masked.
func (p *FileHandle) IsHidden(rel string) bool {
	return p.roots.isMasked(p.grant, filepath.Join(p.Name(), rel), false)
}

// Explain converts an error of the operating system into a refusal.
func (p *FileHandle) Explain(err error) error {
	switch {
	case errors.As(err, new(*Refusal)):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return RefusePath(KindNotFound, "there is no %s", p.shown)
	case errors.Is(err, fs.ErrPermission):
		return p.refuse(KindRejected, "may not be opened: permission denied")
	case strings.Contains(err.Error(), "escapes"): // os.Root has no error value for this
		return p.refuse(KindInvalidArgs, "leads out of %s", p.roots.allowedRoots(p.write))
	}
	return p.refuse(KindExecutionError, "cannot be used: %v", err)
}

// HasOneLink reports whether an open file has a single hard link. It returns false if the links
// cannot be counted.
func HasOneLink(f *os.File) bool {
	n, err := hardlink.Count(f)
	return err == nil && n <= 1
}

// Output is a file that a run is about to rename to its final name.
type Output struct {
	Path    string // absolute path with the links of its folder resolved
	Hash    string // hexadecimal SHA-256
	Size    int64
	ModTime time.Time
}

// OnOutput sets the function that is called with each written file before the file gets its name.
// If it returns an error, the file is not written and the host counts as broken.
func (r *Roots) OnOutput(announce func(context.Context, Output) error) { r.onOutput = announce }

// Announce calls the OnWrite and OnOutput functions for the complete file temp, which is in the
// same root and will be renamed to the handle's path. Each tool that writes a file must call it
// before the rename. The output is then recorded before a watch can see the file.
func (p *FileHandle) Announce(ctx context.Context, temp string) error {
	path, err := p.finalPath()
	if err != nil {
		return err
	}
	// The temporary file is in the same folder as the final file.
	if err := p.recordWrite(ctx, path, filepath.Join(filepath.Dir(path), filepath.Base(temp))); err != nil || p.roots.onOutput == nil {
		return err
	}

	fail := func(err error) error {
		return fmt.Errorf("what is written to %s cannot be read back: %w", p.shown, err)
	}
	f, err := p.Open(temp)
	if err != nil {
		return fail(err)
	}
	defer f.Close()

	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		return fail(err)
	}
	info, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	return p.roots.onOutput(ctx, Output{path, hex.EncodeToString(hash.Sum(nil)), size, info.ModTime()})
}

// finalPath returns the path with the links of its folder resolved. It does not resolve a link at
// the path itself, because a rename replaces it.
func (p *FileHandle) finalPath() (string, error) {
	folder, err := filepath.EvalSymlinks(filepath.Join(p.Name(), filepath.Dir(p.Rel)))
	if err != nil {
		return "", fmt.Errorf("the folder of %s cannot be found: %w", p.shown, err)
	}
	return filepath.Join(folder, filepath.Base(p.Rel)), nil
}

// recordWrite calls the OnWrite function for the file at now, which will be renamed to path.
func (p *FileHandle) recordWrite(ctx context.Context, path, now string) error {
	if p.roots.onWrite == nil {
		return nil
	}
	return p.roots.onWrite(ctx, label.Place{Kind: label.PlaceFile, Name: path, ID: fileID(now)})
}

// AnnounceAs is like Announce for a file with a known hash. The file at the absolute path now will
// be renamed to rel, which is relative to the handle's path. "." is that path itself.
func (p *FileHandle) AnnounceAs(ctx context.Context, now, rel, hash string, info fs.FileInfo) error {
	folder, err := filepath.EvalSymlinks(p.Name())
	if err != nil {
		return fmt.Errorf("the folder of %s cannot be found: %w", p.shown, err)
	}
	path := filepath.Join(folder, p.Rel, rel)
	if err := p.recordWrite(ctx, path, now); err != nil || p.roots.onOutput == nil {
		return err
	}
	return p.roots.onOutput(ctx, Output{path, hash, info.Size(), info.ModTime()})
}
