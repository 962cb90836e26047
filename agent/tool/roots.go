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

// Grant gives a run access to a folder, or to exactly one file if File is set.
type Grant struct {
	Path  string // absolute
	Write bool
	File  bool
	// Private marks data that is only for its owner. Untrusted marks data from strangers.
	Private, Untrusted bool
	// OmitFromMessages omits the grant from messages about allowed paths. It is for skills, which
	// can be numerous.
	OmitFromMessages bool
}

// Roots holds the folders and files that a run may read or write. Every access goes through
// os.Root, so that no path, symbolic link or race leads out of them.
type Roots struct {
	workdir   string
	boundary  nofollow.UntrustedDirs
	roots     []root
	onOutput  func(context.Context, Output) error
	onWrite   func(context.Context, label.Place) error
	private   []string // folders with private content, see KeepPrivate
	untrusted []string // folders with files of strangers, see Distrust
	masks     []mask

	hideSecrets bool // hide secrets from programs too, see HideSecrets
}

// root is a grant with the links in its path resolved. named is the configured path.
type root struct {
	Grant
	named string
}

// NewRoots is like NewRootsWithin without a boundary: only the owner can create links in the paths
// of the roots.
func NewRoots(workdir string, grants []Grant) (*Roots, error) {
	return NewRootsWithin(nofollow.UntrustedDirs{}, workdir, grants)
}

// NewRootsWithin returns the roots for a workdir and grants. The workdir is writable unless a grant
// is for writing. A root is found by its configured path and by its resolved path. Links below the
// boundary b are never followed, because another agent may have created them. It returns an error
// if the workdir cannot be used.
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
		// A grant of a regular file covers only that file, even if it is a secret. Lstat excludes
		// links, because the target of a link can change.
		if info, err := os.Lstat(g.Path); err == nil && info.Mode().IsRegular() {
			g.File = true
		}

		one := r.newRoot(g)
		if _, own := below(dir, one.Path); own {
			one.Private = false // files in the workdir belong to the agent
		}

		r.roots = append(r.roots, one)
	}

	// A grant for writing restricts writes to the granted places, so the workdir is then read-only.
	narrowed := slices.ContainsFunc(grants, func(g Grant) bool { return g.Write })
	r.roots = append(r.roots, root{Grant{Path: dir, Write: !narrowed}, filepath.Clean(workdir)})

	// This needs all writable roots, because an earlier attempt may have created links in them.
	r.roots = slices.DeleteFunc(r.roots, r.escapesByLink)
	return r, nil
}

// newRoot returns the root of a grant, with the links in its path resolved. It does not resolve the
// last part of a single file: if the file is replaced with a link, the grant must not follow the
// link.
func (r *Roots) newRoot(g Grant) root {
	named := filepath.Clean(g.Path)
	folder, last := named, ""
	if g.File {
		folder, last = filepath.Split(named)
	}

	// A folder that does not exist yet keeps its configured path, because it may be created later.
	g.Path = named
	if resolved, err := r.boundary.Resolve(folder); err == nil {
		g.Path = filepath.Join(resolved, last)
	}
	return root{g, named}
}

// Workdir returns the base folder of relative paths.
func (r *Roots) Workdir() string { return r.workdir }

// innermost returns the innermost root that allows the access, and the absolute path below it. The
// root is nil if no root allows the access.
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

// resolve replaces the root's configured path in an absolute path with its resolved path. It
// reports false if the path is not in the root.
func (g *root) resolve(abs string) (string, bool) {
	for _, name := range []string{g.Path, g.named} {
		if rest, ok := below(name, abs); ok && (rest == "" || !g.File) {
			return filepath.Join(g.Path, rest), true
		}
	}
	return "", false
}

// below returns the part of a clean path below a folder, and reports whether the path is the folder
// or lies in it. /a/bc is not below /a/b.
func below(folder, abs string) (rest string, ok bool) {
	if abs == folder {
		return "", true
	}
	const separator = string(filepath.Separator)
	return strings.CutPrefix(abs, strings.TrimSuffix(folder, separator)+separator)
}

// Resolve returns a handle for a path, which is absolute or relative to the workdir. It returns a
// *Refusal if the run may not access the path. The caller must close the handle.
func (r *Roots) Resolve(path string, write bool) (*FileHandle, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return nil, RefusePath(KindInvalidArgs, "%q is not a path", path)
	}

	g, abs := r.innermost(path, write)
	if g == nil {
		return nil, RefusePath(KindInvalidArgs, "%s is outside of %s", path, r.allowedRoots(write))
	}

	// Only the part below the root is checked, because the owner chose the path of the grant.
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

	// os.Root can open only folders. For a single file, resolve refuses all other paths in its
	// folder.
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

// openRoot opens the folder of a root. A folder in a writable root is opened through that root, so
// that the run cannot replace it with a link to another place. Links of other agents are not
// followed.
func (r *Roots) openRoot(folder string) (*os.Root, error) {
	if r.boundary.Holds(folder) != "" {
		return r.boundary.OpenRoot(folder)
	}

	// Use the outermost writable root, because the run can replace every part below it.
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

// insideWritable reports whether a root lies in another root that is writable.
func (r *Roots) insideWritable(g root) bool {
	return slices.ContainsFunc(r.roots, func(w root) bool {
		rest, in := below(w.Path, g.Path)
		return in && rest != "" && w.Write && !w.File
	})
}

// escapesByLink reports whether a root's configured path lies in a writable root but its resolved
// path does not. The agent may have created the link.
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

// Open opens a file or folder for reading. The caller must close the file.
func (r *Roots) Open(path string) (*os.File, error) {
	p, err := r.Resolve(path, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.OpenChecked()
}

// Canonical returns one path for all names of a file, which serves as the key for Locks. It does
// not open the file.
func (r *Roots) Canonical(path string) string {
	_, abs := r.innermost(path, true)
	if abs == "" {
		return path
	}

	// Only the folder is resolved: the file may not exist yet, and writes do not follow links.
	if folder, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		return filepath.Join(folder, filepath.Base(abs))
	}
	return abs
}

// StatKey returns a string that changes if the file at a path changes. It returns "" if the run may
// not read the path or the file does not exist.
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

// maxNamed is the maximum number of single files named in a message. A run may have hundreds.
const maxNamed = 5

// allowedRoots returns a description of the paths that the run may read or write.
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

// ProtectedPaths lists places that agents must not change, even before they exist, because later
// runs trust their content. A granted folder below such a place is not protected.
type ProtectedPaths struct {
	ReadOnly []string // absolute paths that tools must not change: configurations, skills
	Hidden   []string // absolute paths that tools must not read or change: the daemon's home
}

type mask struct {
	path   string
	hidden bool
}

// Mask protects places within the roots from the tools of the run. Links in the paths must be
// resolved, see Resolved.
func (r *Roots) Mask(m ProtectedPaths) {
	for _, path := range m.ReadOnly {
		r.masks = append(r.masks, mask{filepath.Clean(path), false})
	}
	for _, path := range m.Hidden {
		r.masks = append(r.masks, mask{filepath.Clean(path), true})
	}
}

// Resolved returns m with the resolved paths added. It keeps the original paths, because links can
// change.
func (m ProtectedPaths) Resolved() ProtectedPaths {
	return ProtectedPaths{WithResolvedLinks(m.ReadOnly), WithResolvedLinks(m.Hidden)}
}

// WithResolvedLinks returns the paths, followed by the resolved paths that differ from them.
func WithResolvedLinks(paths []string) []string {
	out := slices.Clone(paths)
	for _, p := range paths {
		if actual := resolveExisting(p); !slices.Contains(out, actual) {
			out = append(out, actual)
		}
	}
	return out
}

// resolveExisting resolves the links in the existing part of a path.
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

// isMasked reports whether a mask forbids reading a path within a root or, if write is set,
// changing it.
func (r *Roots) isMasked(g *root, abs string, write bool) bool {
	return slices.ContainsFunc(r.masks, func(m mask) bool {
		_, in := below(m.path, abs)
		// A root below the mask was granted on purpose, for example an agent's workdir in the
		// masked home. A root at or above the mask does not lift the mask.
		return in && (m.hidden || write) && len(m.path) >= len(g.Path)
	})
}

func maskError(shown string) error {
	return RefusePath(KindRejected, "%s belongs to rouse itself or to its owner alone: its home, its configuration or its skills; no agent changes those", shown)
}
