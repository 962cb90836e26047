package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// FileHandle is a path inside a root. Close it.
type FileHandle struct {
	*os.Root
	Rel string // within the root

	shown        string // as the caller wrote it
	allowedRoots string // where the run may go, for messages
	write        bool
	singleFile   bool // nothing but this one file was granted
	inWorkdir    bool // inside the workdir
	onOutput     func(context.Context, Output) error
	isMasked     func(abs string, write bool) bool // nil: nothing is
}

// PathError is a path that may not be used, or that does not lead to a file (OSA-30).
type PathError struct {
	Kind    Kind
	Message string
}

func (e *PathError) Error() string { return e.Message }

// Envelope is the answer to a call with such a path.
func (e *PathError) Envelope() Envelope {
	return Failure(e.Kind, "%s", e.Message).WithField("path", "")
}

func (p *FileHandle) refuse(kind Kind, format string, args ...any) error {
	return &PathError{kind, p.shown + " " + fmt.Sprintf(format, args...)}
}

// InWorkdir says whether the place is inside the workdir.
func (p *FileHandle) InWorkdir() bool { return p.inWorkdir }

// OpenChecked opens what is at the place for reading. Only files and folders are opened: a
// pipe would wait for ever. A link is followed inside a folder that was granted for
// reading, and nowhere else; another name of a file that may lie elsewhere is refused.
func (p *FileHandle) OpenChecked() (*os.File, error) {
	info, err := p.Lstat(p.Rel)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if p.write || p.singleFile {
			return nil, p.refuse(KindRejected, "is a link; name the file itself")
		}
		info, err = p.Stat(p.Rel)
	}
	if err != nil {
		return nil, p.Explain(err)
	}
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

// checkResolved refuses a secret file that was opened by the name of a link to it, or to its folder.
func (p *FileHandle) checkResolved(f *os.File) error {
	if p.singleFile {
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

	named, err := os.Stat(actual)
	if err != nil || !os.SameFile(named, opened) {
		return p.refuse(KindExecutionError, "was replaced while it was opened; try again")
	}

	root, err := filepath.EvalSymlinks(p.Name())
	if err != nil {
		return p.Explain(err)
	}
	if rel, ok := below(root, actual); !ok || Secret(rel) {
		return secretError(p.shown)
	}
	if p.isMasked != nil && p.isMasked(actual, p.write) {
		return maskError(p.shown)
	}

	return nil
}

// CheckWrite refuses a place to be written whose folder is, behind its links, one for secrets, or
// that is masked.
func (p *FileHandle) CheckWrite() error {
	root, err := filepath.EvalSymlinks(p.Name())
	if err != nil {
		return p.Explain(err)
	}

	folder, err := filepath.EvalSymlinks(filepath.Join(root, filepath.Dir(p.Rel)))
	if err != nil {
		return p.Explain(err)
	}

	rel, ok := below(root, folder)
	if !p.singleFile && (!ok || Secret(filepath.Join(rel, filepath.Base(p.Rel)))) {
		return secretError(p.shown)
	}
	if p.isMasked != nil && p.isMasked(filepath.Join(folder, filepath.Base(p.Rel)), true) {
		return maskError(p.shown)
	}

	return nil
}

func secretError(shown string) error {
	return &PathError{KindRejected, shown + " holds secrets by its name, and is neither read nor written; its owner can grant it by that name, under grants: read"}
}

// checkOpened looks at the file that was really opened.
func (p *FileHandle) checkOpened(f *os.File, expected fs.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return p.Explain(err)
	}
	if !os.SameFile(info, expected) {
		return p.refuse(KindExecutionError, "was replaced while it was opened; try again")
	}
	if !info.Mode().IsRegular() || (p.inWorkdir && !p.write) {
		return nil
	}

	n, err := linkCount(f)
	if err != nil {
		return p.Explain(err)
	}
	if n > 1 {
		return p.refuse(KindRejected, "is a hard link: its other name may lie outside of %s; copy the file instead", p.allowedRoots)
	}

	return nil
}

// Explain words the system's refusal of the place as a *PathError.
func (p *FileHandle) Explain(err error) error {
	var bad *PathError
	switch {
	case errors.As(err, &bad):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return &PathError{KindNotFound, "there is no " + p.shown}
	case errors.Is(err, fs.ErrPermission):
		return p.refuse(KindRejected, "may not be opened: permission denied")
	case strings.Contains(err.Error(), "escapes"): // os.Root has no error value for it
		return p.refuse(KindInvalidArgs, "leads out of %s", p.allowedRoots)
	}

	return p.refuse(KindExecutionError, "cannot be used: %v", err)
}

// HasOneLink says whether an open file has but one name, so that no other leads out of what was granted.
func HasOneLink(f *os.File) bool {
	n, err := linkCount(f)
	return err == nil && n <= 1
}
