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

	"rouse/internal/ledger/label"
	"rouse/internal/nofollow"
)

// Grant gives a run access to a folder, or with File to exactly one file.
type Grant struct {
	Path  string // absolute
	Write bool
	File  bool
	// Private data is for its owner alone; untrusted data comes from strangers.
	Private, Untrusted bool
	// OmitFromMessages keeps the grant out of messages about where a run may go: there may be many.
	OmitFromMessages bool
}

// Roots are the folders and files that a run may read or write. Every access goes through os.Root,
// which no path, symbolic link or race leads out of.
type Roots struct {
	workdir   string
	boundary  nofollow.UntrustedDirs
	roots     []root
	onOutput  func(context.Context, Output) error
	onWrite   func(context.Context, label.Place) error
	private   []string // folders in which everything is for their owner alone
	untrusted []string // folders in which strangers leave files
	masks     []mask

	hideSecrets bool // from programs as well, see HideSecrets
}

// root is a grant with the links in its path resolved, and its configured name.
type root struct {
	Grant
	named string
}

// NewRoots is NewRootsWithin if only the owner makes links on the way to the roots.
func NewRoots(workdir string, grants []Grant) (*Roots, error) {
	return NewRootsWithin(nofollow.UntrustedDirs{}, workdir, grants)
}

// NewRootsWithin grants a workdir, read-write unless one of the grants is for writing, and the
// grants. Paths are kept resolved and by name, so that one folder is one root by all its names. No
// link below the boundary is ever followed: another agent may have made it.
func NewRootsWithin(b nofollow.UntrustedDirs, workdir string, grants []Grant) (*Roots, error) {
	dir, err := b.Resolve(workdir)
	if err == nil {
		_, err = b.Stat(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("the agent's workdir cannot be used: %w", err)
	}

	r := &Roots{workdir: dir, boundary: b}
	for _, g := range grants {
		// The owner grants a named file alone, even if it is a secret. Lstat: a link to a file could
		// lead elsewhere later.
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

// newRoot resolves the path of a grant, but not the last part of a single file: whoever can swap it
// for a link must not choose what is granted.
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

// Workdir returns the folder in which relative paths begin.
func (r *Roots) Workdir() string { return r.workdir }

// innermost returns the innermost root that allows the access, and the absolute path through it.
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

// below cuts a folder off a clean path: /a/bc is not below /a/b.
func below(folder, abs string) (rest string, ok bool) {
	if abs == folder {
		return "", true
	}
	const separator = string(filepath.Separator)
	return strings.CutPrefix(abs, strings.TrimSuffix(folder, separator)+separator)
}

// Resolve opens the root of a path, which is relative to the workdir or absolute.
func (r *Roots) Resolve(path string, write bool) (*FileHandle, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return nil, RefusePath(KindInvalidArgs, "%q is not a path", path)
	}

	g, abs := r.innermost(path, write)
	if g == nil {
		return nil, RefusePath(KindInvalidArgs, "%s is outside of %s", path, r.allowedRoots(write))
	}

	// Only the part below the root is judged: the name of a grant is its owner's choice.
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

	// os.Root opens folders only. For a single file, resolve lets no other name of its folder through.
	folder := g.Path
	if g.File {
		folder = filepath.Dir(g.Path)
	}

	in, err := r.openRoot(folder)
	if err != nil {
		kind := KindNotFound
		if errors.As(err, new(*nofollow.LinkError)) {
			kind = KindRejected
		}
		return nil, RefusePath(kind, "%s cannot be reached: %v", path, err)
	}

	rel, err := filepath.Rel(folder, abs)
	if err != nil {
		return nil, errors.Join(RefusePath(KindInvalidArgs, "%s is not inside %s", path, folder), in.Close())
	}
	_, own := below(r.workdir, abs)
	return &FileHandle{Root: in, Rel: rel, roots: r, grant: g, shown: path, write: write, inWorkdir: own}, nil
}

// openRoot opens the folder of a root. One that lies in a writable root is opened through that
// root, so that a link of the run in its place leads nowhere else. Links of other agents are not
// followed.
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
	return slices.ContainsFunc(r.roots, func(w root) bool {
		rest, in := below(w.Path, g.Path)
		return in && rest != "" && w.Write && !w.File
	})
}

// escapesByLink reports whether a root's name lies in a writable root but its resolved path does
// not: a run may have made the link that leads there.
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

// Canonical maps the names of a file to one, by which calls take turns. It opens nothing.
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

// StatKey returns a text that changes if the file at a path does; "" if nothing may be seen there.
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

// ProtectedPaths are places that no agent may change, even if nothing is there yet: a later run trusts what
// is in them. A folder that was granted further inside is not masked.
type ProtectedPaths struct {
	ReadOnly []string // absolute; no tool changes them: configurations, skills
	Hidden   []string // nor reads them: the daemon's home
}

type mask struct {
	path   string
	hidden bool
}

// Mask keeps the tools of a run out of masked places within its roots. Links must be resolved
// (see Resolved).
func (r *Roots) Mask(m ProtectedPaths) {
	for _, path := range m.ReadOnly {
		r.masks = append(r.masks, mask{filepath.Clean(path), false})
	}
	for _, path := range m.Hidden {
		r.masks = append(r.masks, mask{filepath.Clean(path), true})
	}
}

// Resolved adds the paths that links lead to now. The names stay, because links can change.
func (m ProtectedPaths) Resolved() ProtectedPaths {
	return ProtectedPaths{WithResolvedLinks(m.ReadOnly), WithResolvedLinks(m.Hidden)}
}

// WithResolvedLinks returns paths and what they are once links are followed.
func WithResolvedLinks(paths []string) []string {
	out := slices.Clone(paths)
	for _, p := range paths {
		if actual := resolveExisting(p); !slices.Contains(out, actual) {
			out = append(out, actual)
		}
	}
	return out
}

// resolveExisting follows the links in the part of a path that exists.
func resolveExisting(path string) string {
	path = filepath.Clean(path)
	if actual, err := filepath.EvalSymlinks(path); err == nil {
		return actual
	}

	folder := filepath.Dir(path)
	if folder == path {
		return path
	}
	return filepath.Join(resolveExisting(folder), filepath.Base(path))
}

// isMasked reports whether a path within a root may not be read, or with write not be changed.
func (r *Roots) isMasked(g *root, abs string, write bool) bool {
	return slices.ContainsFunc(r.masks, func(m mask) bool {
		_, in := below(m.path, abs)
		// A root that lies deeper than the mask was granted on purpose, as an agent's workdir is
		// in the masked home. A root at the mask itself, or above it, lifts nothing.
		return in && (m.hidden || write) && len(m.path) >= len(g.Path)
	})
}

func maskError(shown string) error {
	return RefusePath(KindRejected, "%s belongs to rouse itself or to its owner alone: its home, its configuration or its skills; no agent changes those", shown)
}
