package tool

import (
	"path/filepath"
	"slices"
)

// Masks are places that no agent may change, even if nothing is there yet: a later run trusts what
// is in them. A folder that was granted further inside is not masked.
type Masks struct {
	ReadOnly []string // absolute; no tool changes them: configurations, skills
	Hidden   []string // nor reads them: the daemon's home
}

type mask struct {
	path   string
	hidden bool
}

// Mask keeps the tools of a run out of masked places within its roots. Links must be resolved
// (see Resolved).
func (r *Roots) Mask(m Masks) {
	for _, path := range m.ReadOnly {
		r.masks = append(r.masks, mask{filepath.Clean(path), false})
	}
	for _, path := range m.Hidden {
		r.masks = append(r.masks, mask{filepath.Clean(path), true})
	}
}

// Resolved adds the paths that links lead to now. The names stay, because links can change.
func (m Masks) Resolved() Masks {
	return Masks{WithResolvedLinks(m.ReadOnly), WithResolvedLinks(m.Hidden)}
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
