package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agentdb/ledger"
	"rouse/internal/nofollow"
)

// Grant gives a run access to a folder, or with File to exactly one file.
type Grant struct {
	Path  string // absolute
	Write bool
	File  bool
	// What is read there: Private is for its owner alone, Untrusted comes from strangers.
	Private, Untrusted bool
	// Unnamed keeps the grant out of messages about where a run may go: there may be many
	// such, and whoever needs one has its path.
	OmitFromMessages bool
}

// Roots are the folders and files that a run may read or write. Every access goes through os.Root,
// which no path, symbolic link or race leads out of.
type Roots struct {
	workdir   string
	boundary  nofollow.Boundary
	roots     []root
	onOutput  func(context.Context, Output) error
	onWrite   func(context.Context, ledger.Place) error
	private   []string // folders in which everything is for their owner alone
	untrusted []string // folders in which strangers leave files
	masks     []mask

	hideSecrets bool // from programs as well, see HideSecrets
}

// root is a grant with the links in its path resolved, and the name that the configuration and the
// prompt use for it.
type root struct {
	Grant
	named string
}

// NewRoots is NewRootsWithin where nobody but the owner makes links on the way to the roots.
func NewRoots(workdir string, grants []Grant) (*Roots, error) {
	return NewRootsWithin(nofollow.Boundary{}, workdir, grants)
}

// NewRootsWithin grants a workdir, read-write unless one of the grants is for writing, and the grants.
// Paths are kept resolved as well as by name, so that one folder is one root by all its names. No link
// below the boundary is followed on the way to them, neither now nor when they are used: another agent
// may have put it in their place.
func NewRootsWithin(b nofollow.Boundary, workdir string, grants []Grant) (*Roots, error) {
	dir, err := b.Resolve(workdir)
	if err == nil {
		_, err = b.Stat(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("the agent's workdir cannot be used: %w", err)
	}

	r := &Roots{workdir: dir, boundary: b}
	for _, g := range grants {
		// An owner who names a file grants that file alone, also one that is otherwise refused as
		// a secret. Lstat: what is only a link to a file now could lead elsewhere later.
		if info, err := os.Lstat(g.Path); err == nil && info.Mode().IsRegular() {
			g.File = true
		}

		one := r.newRoot(g)
		if _, own := below(dir, one.Path); own {
			one.Private = false // what lies in the workdir is the agent's own
		}

		r.roots = append(r.roots, one)
	}

	// A grant for writing says where the agent may write; the workdir is then only read.
	narrowed := slices.ContainsFunc(grants, func(g Grant) bool { return g.Write })
	r.roots = append(r.roots, root{Grant{Path: dir, Write: !narrowed}, filepath.Clean(workdir)})

	// Last, when all writable roots are known: the run itself may have made the links in the others.
	r.roots = slices.DeleteFunc(r.roots, r.escapesByLink)
	return r, nil
}

// newRoot resolves the path of a grant. The last part of a single file is never followed: whoever
// can swap the file for a link must not choose what is granted.
func (r *Roots) newRoot(g Grant) root {
	named := filepath.Clean(g.Path)
	folder, last := named, ""
	if g.File {
		folder, last = filepath.Split(named)
	}

	// A folder that is not there yet keeps its name: it may come later.
	g.Path = named
	if resolved, err := r.boundary.Resolve(folder); err == nil {
		g.Path = filepath.Join(resolved, last)
	}
	return root{g, named}
}

// Workdir is where relative paths begin.
func (r *Roots) Workdir() string { return r.workdir }

// innermost finds the innermost root that allows the access, and the absolute path by way of it.
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

// resolve replaces the root's name in an absolute path by its resolved path.
func (g *root) resolve(abs string) (string, bool) {
	for _, name := range []string{g.Path, g.named} {
		if rest, ok := below(name, abs); ok && (rest == "" || !g.File) {
			return filepath.Join(g.Path, rest), true
		}
	}
	return "", false
}

// below cuts a folder off a clean path. It compares whole elements: /a/bc is not below /a/b.
func below(folder, abs string) (rest string, ok bool) {
	if abs == folder {
		return "", true
	}
	const separator = string(filepath.Separator)
	return strings.CutPrefix(abs, strings.TrimSuffix(folder, separator)+separator)
}

// Resolve opens the root of a path, which is relative to the workdir or absolute. The error is a
// *PathError, which names the roots that are allowed instead.
func (r *Roots) Resolve(path string, write bool) (*FileHandle, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return nil, &PathError{KindInvalidArgs, fmt.Sprintf("%q is not a path", path)}
	}

	g, abs := r.innermost(path, write)
	if g == nil {
		return nil, &PathError{KindInvalidArgs, fmt.Sprintf("%s is outside of %s", path, r.allowedRoots(write))}
	}

	// Only the part below the root is judged: the name of a grant itself is its owner's choice.
	within, _ := below(g.Path, abs)
	if IsSecretPath(within) {
		return nil, secretError(path)
	}
	if r.isMasked(g, abs, write) {
		return nil, maskError(path)
	}
	if write && !g.File {
		if why := gitObstacle(g.Path, cmp.Or(within, ".")); why != "" {
			return nil, gitError(path, why)
		}
	}

	// os.Root opens folders only. For a single file resolve lets no other name of its folder through.
	folder := g.Path
	if g.File {
		folder = filepath.Dir(g.Path)
	}

	in, err := r.openRoot(folder)
	if _, ok := errors.AsType[*nofollow.LinkError](err); ok {
		return nil, &PathError{KindRejected, fmt.Sprintf("%s cannot be reached: %v", path, err)}
	}
	if err != nil {
		return nil, &PathError{KindNotFound, fmt.Sprintf("%s cannot be reached: %v", path, err)}
	}

	rel, err := filepath.Rel(folder, abs)
	if err != nil {
		return nil, errors.Join(&PathError{KindInvalidArgs, fmt.Sprintf("%s is not inside %s", path, folder)}, in.Close())
	}

	_, own := below(r.workdir, abs)
	p := &FileHandle{Root: in, Rel: rel, shown: path, allowedRoots: r.allowedRoots(write), write: write, singleFile: g.File, inWorkdir: own, onOutput: r.onOutput, onWrite: r.onWrite}
	if len(r.masks) > 0 {
		p.isMasked = func(abs string, write bool) bool { return r.isMasked(g, abs, write) }
	}

	return p, nil
}

// openRoot opens the folder of a root. A folder that lies in a writable root is opened by way of
// that one, so that a link which the run has put in its place leads nowhere else; one that another agent
// could have put there is not followed at all.
func (r *Roots) openRoot(folder string) (*os.Root, error) {
	if r.boundary.Holds(folder) != "" {
		return r.boundary.OpenRoot(folder)
	}

	// The outermost: every part below it is one that the run can replace.
	outer, within := "", ""
	for _, w := range r.roots {
		if rest, in := below(w.Path, folder); in && rest != "" && w.Write && !w.File && (outer == "" || len(w.Path) < len(outer)) {
			outer, within = w.Path, rest
		}
	}
	if outer == "" {
		return os.OpenRoot(folder)
	}

	root, err := os.OpenRoot(outer)
	if err != nil {
		return nil, err
	}
	defer root.Close()

	return root.OpenRoot(within)
}

// insideWritable reports whether a root lies in another one that the run may write.
func (r *Roots) insideWritable(g root) bool {
	for _, w := range r.roots {
		if rest, in := below(w.Path, g.Path); in && rest != "" && w.Write && !w.File {
			return true
		}
	}
	return false
}

// escapesByLink reports whether a root's name lies in a writable root but its resolved path does not:
// this run, or an earlier one, may have made the link that leads there.
func (r *Roots) escapesByLink(g root) bool {
	for _, w := range r.roots {
		if !w.Write || w.File {
			continue
		}
		for _, name := range []string{w.named, w.Path} {
			rest, in := below(name, g.named)
			if _, still := below(w.Path, g.Path); in && rest != "" && !still {
				return true
			}
		}
	}
	return false
}

// Open opens a file or a folder for reading.
func (r *Roots) Open(path string) (*os.File, error) {
	p, err := r.Resolve(path, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.OpenChecked()
}

// Canonical maps the many names of a file to one. It decides which calls take turns, and
// opens nothing.
func (r *Roots) Canonical(path string) string {
	_, abs := r.innermost(path, true)
	if abs == "" {
		return path
	}

	// The file itself may not exist yet, and a link is not written through: only its folder counts.
	if folder, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		return filepath.Join(folder, filepath.Base(abs))
	}
	return abs
}

// StatKey is a text that changes when the file at a path does. It is "" where there is nothing, or
// nothing that may be seen.
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

// maxNamed bounds the single files that a message names: a run may have hundreds.
const maxNamed = 5

// allowedRoots says in words where the run may go.
func (r *Roots) allowedRoots(write bool) string {
	verb, out := "read", []string(nil)
	if write {
		verb = "write"
	}

	files := 0
	for _, g := range r.roots {
		if write && !g.Write || g.OmitFromMessages {
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
