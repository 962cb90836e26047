package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Grant lets a run reach a folder, or with File exactly one file.
type Grant struct {
	Path  string // absolute
	Write bool
	File  bool
	// What is read there: Private is for its owner alone, Untrusted comes from strangers.
	Private, Untrusted bool
	// Unnamed keeps the place out of messages about where a run may go: there may be many
	// such, and who needs one has its path.
	Unnamed bool
}

// Roots are the places that a run may reach. Every access goes through os.Root, which no
// path, symbolic link or race leads out of.
type Roots struct {
	workdir     string
	roots       []root
	onOutput    func(context.Context, Output) error // of OnOutput
	memoryTaint func(context.Context) (Taint, error)
	untrusted   []string // folders in which strangers leave files
	masks       []mask
}

// root is a grant under the one name of its place, and under the name that the
// configuration and the prompt use.
type root struct {
	Grant
	named string
}

// NewRoots grants a workdir, read-write unless the grants narrow it, and what else is given.
// Folders are known by their resolved name as well, so that one place is one root. The last
// part of a single file is never followed: who can swap the file for a link must not
// choose what is granted.
func NewRoots(workdir string, grants []Grant) (*Roots, error) {
	dir, err := filepath.EvalSymlinks(workdir)
	if err != nil {
		return nil, fmt.Errorf("the agent's workdir cannot be used: %w", err)
	}

	r := &Roots{workdir: dir}
	for _, g := range grants {
		if info, err := os.Lstat(g.Path); err == nil && info.Mode().IsRegular() {
			g.File = true // so an owner gives one file of a folder, a secret one included
		}

		one := newRoot(g)
		if _, own := below(dir, one.Path); own {
			one.Private = false // it is the agent's own
		}

		r.roots = append(r.roots, one)
	}

	narrowed := slices.ContainsFunc(grants, func(g Grant) bool { return g.Write })
	r.roots = append(r.roots, root{Grant{Path: dir, Write: !narrowed}, filepath.Clean(workdir)})
	r.roots = slices.DeleteFunc(r.roots, r.escapesByLink)
	return r, nil
}

func newRoot(g Grant) root {
	named := filepath.Clean(g.Path)
	folder, last := named, ""
	if g.File {
		folder, last = filepath.Split(named)
	}

	g.Path = named
	if resolved, err := filepath.EvalSymlinks(folder); err == nil {
		g.Path = filepath.Join(resolved, last)
	}
	return root{g, named}
}

// Workdir is where relative paths begin.
func (r *Roots) Workdir() string { return r.workdir }

// innermost is the innermost root that allows the access, and the path's name in it.
func (r *Roots) innermost(path string, write bool) (*root, string) {
	abs := path
	if !filepath.IsAbs(abs) {
		abs = filepath.Join(r.workdir, abs)
	}

	abs = filepath.Clean(abs)
	var best *root
	var at string
	for i := range r.roots {
		g := &r.roots[i]
		inside, ok := g.resolve(abs)
		if ok && (!write || g.Write) && (best == nil || len(g.Path) > len(best.Path)) {
			best, at = g, inside
		}
	}

	return best, at
}

// resolve gives the resolved name of an absolute path inside a root.
func (g *root) resolve(abs string) (string, bool) {
	for _, name := range []string{g.Path, g.named} {
		if rest, ok := below(name, abs); ok && (rest == "" || !g.File) {
			return filepath.Join(g.Path, rest), true
		}
	}
	return "", false
}

// below cuts a folder off a clean path; a prefix ends at a separator.
func below(folder, abs string) (rest string, ok bool) {
	if abs == folder {
		return "", true
	}
	const separator = string(filepath.Separator)
	return strings.CutPrefix(abs, strings.TrimSuffix(folder, separator)+separator)
}

// At finds the root of a path: relative to the workdir, or absolute inside a root. A
// *PathError says where one may go instead.
func (r *Roots) At(path string, write bool) (*FileHandle, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return nil, &PathError{KindInvalidArgs, fmt.Sprintf("%q is not a path", path)}
	}

	g, abs := r.innermost(path, write)
	if g == nil {
		return nil, &PathError{KindInvalidArgs, fmt.Sprintf("%s is outside of %s", path, r.allowedRoots(write))}
	}
	if within, _ := below(g.Path, abs); Secret(within) { // the name of a grant itself is its owner's choice
		return nil, secretError(path)
	}
	if r.isMasked(g, abs, write) {
		return nil, maskError(path)
	}

	folder := g.Path
	if g.File {
		folder = filepath.Dir(g.Path)
	}

	in, err := r.openRoot(folder)
	if err != nil {
		return nil, &PathError{KindNotFound, fmt.Sprintf("%s cannot be reached: %v", path, err)}
	}

	rel, err := filepath.Rel(folder, abs)
	if err != nil {
		return nil, errors.Join(&PathError{KindInvalidArgs, fmt.Sprintf("%s is not inside %s", path, folder)}, in.Close())
	}

	_, own := below(r.workdir, abs)
	p := &FileHandle{Root: in, Rel: rel, shown: path, allowedRoots: r.allowedRoots(write), write: write, singleFile: g.File, inWorkdir: own, onOutput: r.onOutput}
	if len(r.masks) > 0 {
		p.isMasked = func(abs string, write bool) bool { return r.isMasked(g, abs, write) }
	}

	return p, nil
}

// Open opens a file or a folder for reading.
func (r *Roots) Open(path string) (*os.File, error) {
	p, err := r.At(path, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.OpenChecked()
}

// Canonical gives the many names of a place one; it decides which calls take turns, and
// opens nothing.
func (r *Roots) Canonical(path string) string {
	_, abs := r.innermost(path, true)
	if abs == "" {
		return path
	}
	if folder, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		return filepath.Join(folder, filepath.Base(abs))
	}
	return abs
}

// maxNamed bounds the single files that a message names: a run may have hundreds.
const maxNamed = 5

// StatKey says what a place looks like now: another answer means that it has changed. It is ""
// where there is nothing, or nothing that may be seen.
func (r *Roots) StatKey(path string) string {
	_, abs := r.innermost(path, false)
	if abs == "" {
		return ""
	}

	info, err := os.Stat(abs)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %d %s", info.Size(), info.ModTime().UnixNano(), info.Mode())
}

// allowedRoots says in words where the run may go.
func (r *Roots) allowedRoots(write bool) string {
	verb, out := "read", []string(nil)
	if write {
		verb = "write"
	}

	files := 0
	for _, g := range r.roots {
		if write && !g.Write || g.Unnamed {
			continue
		}

		if g.File {
			if files++; files > maxNamed {
				continue
			}
		}

		out = append(out, g.named)
	}

	if files > maxNamed {
		out = append(out, fmt.Sprintf("and %d more files", files-maxNamed))
	}

	if len(out) == 0 {
		out = []string{"nothing"}
	}

	return fmt.Sprintf("what this run may %s: %s", verb, strings.Join(out, ", "))
}
