package tool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Grant lets a run reach a folder, or with File exactly one file.
type Grant struct {
	Path  string // absolute
	Write bool
	File  bool
}

// Roots are the places that a run may reach. Every access goes through os.Root, which no
// path, symbolic link or race leads out of.
type Roots struct {
	workdir string
	grants  []Grant
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

// NewRoots grants a workdir, read-write unless the grants narrow it, and what else is given.
// Folders are named with their links resolved, so that one place has one name.
func NewRoots(workdir string, grants []Grant) (*Roots, error) {
	dir, err := filepath.EvalSymlinks(workdir)
	if err != nil {
		return nil, fmt.Errorf("the agent's workdir cannot be used: %w", err)
	}
	r := &Roots{workdir: dir}
	narrowed := false
	for _, g := range grants {
		narrowed = narrowed || g.Write
		if resolved, err := filepath.EvalSymlinks(g.Path); err == nil {
			g.Path = resolved
		}
		g.Path = filepath.Clean(g.Path)
		r.grants = append(r.grants, g)
	}
	r.grants = append(r.grants, Grant{Path: dir, Write: !narrowed})
	return r, nil
}

// Workdir is where relative paths begin.
func (r *Roots) Workdir() string { return r.workdir }

// Place is a path inside a root. Close it.
type Place struct {
	*os.Root
	Rel string // within the root
	Abs string
}

// At finds the root of a path: relative to the workdir, or absolute inside a root. A
// *PathError says where one may go instead.
func (r *Roots) At(path string, write bool) (*Place, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return nil, &PathError{KindInvalidArgs, fmt.Sprintf("%q is not a path", path)}
	}
	abs := path
	if !filepath.IsAbs(abs) {
		abs = filepath.Join(r.workdir, abs)
	}
	abs = filepath.Clean(abs)
	var best *Grant
	for i := range r.grants {
		g := &r.grants[i]
		if g.holds(abs) && (!write || g.Write) && (best == nil || len(g.Path) > len(best.Path)) {
			best = g
		}
	}
	if best == nil {
		return nil, &PathError{KindInvalidArgs, fmt.Sprintf("%s is outside of what this run may %s: %s", path, verb(write), r.describe(write))}
	}
	dir := best.Path
	if best.File {
		dir = filepath.Dir(best.Path)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &PathError{KindNotFound, fmt.Sprintf("%s cannot be reached: %v", path, err)}
	}
	rel, err := filepath.Rel(dir, abs)
	if err != nil {
		return nil, errors.Join(&PathError{KindInvalidArgs, fmt.Sprintf("%s is not inside %s", path, dir)}, root.Close())
	}
	return &Place{root, rel, abs}, nil
}

// holds says whether an absolute path is inside a grant; a prefix ends at a separator.
func (g *Grant) holds(abs string) bool {
	if abs == g.Path {
		return true
	}
	return !g.File && strings.HasPrefix(abs, strings.TrimSuffix(g.Path, string(filepath.Separator))+string(filepath.Separator))
}

func verb(write bool) string {
	if write {
		return "write"
	}
	return "read"
}

func (r *Roots) describe(write bool) string {
	var out []string
	for _, g := range r.grants {
		if !write || g.Write {
			out = append(out, g.Path)
		}
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// Open opens a file for reading.
func (r *Roots) Open(path string) (*os.File, error) {
	p, err := r.At(path, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	f, err := p.Open(p.Rel)
	if err != nil {
		return nil, Explain(path, err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && links(info) > 1 && !r.inWorkdir(p.Abs) {
		err = &PathError{KindRejected, fmt.Sprintf("%s is a hard link to a file that may lie elsewhere; copy it instead", path)}
	}
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = &PathError{KindRejected, fmt.Sprintf("%s is neither a file nor a folder", path)}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (r *Roots) inWorkdir(abs string) bool {
	g := Grant{Path: r.workdir}
	return g.holds(abs)
}

// Explain words the system's refusal of a path as a *PathError.
func Explain(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &PathError{KindNotFound, fmt.Sprintf("there is no %s", path)}
	case errors.Is(err, fs.ErrPermission):
		return &PathError{KindRejected, fmt.Sprintf("%s may not be opened: permission denied", path)}
	case strings.Contains(err.Error(), "escapes"):
		return &PathError{KindInvalidArgs, fmt.Sprintf("%s leads out of what this run may reach", path)}
	}
	return &PathError{KindExecutionError, fmt.Sprintf("%s cannot be used: %v", path, err)}
}

// CheckLinks refuses to write through a hard link: its other name may lie elsewhere.
func CheckLinks(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() && links(info) > 1 {
		return &PathError{KindRejected, fmt.Sprintf("%s is a hard link; writing it could change a file elsewhere", path)}
	}
	return nil
}
