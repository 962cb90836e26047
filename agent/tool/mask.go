package tool

import (
	"path/filepath"
	"slices"
)

// Masks are places that are no agent's, wherever they lie, also while nothing is there yet: a
// later run trusts what is in them. A place that was granted further inside is not masked.
type Masks struct {
	Fixed  []string // absolute; no tool changes them: configurations, skills
	Hidden []string // nor reads them: the daemon's home
}

// mask is a masked place.
type mask struct {
	path   string
	hidden bool
}

// Mask keeps the tools of a run out of places that lie within those that it may reach. Links on
// the way to them are followed by Resolved, once for many runs.
func (r *Roots) Mask(m Masks) {
	for _, path := range m.Fixed {
		r.masks = append(r.masks, mask{filepath.Clean(path), false})
	}
	for _, path := range m.Hidden {
		r.masks = append(r.masks, mask{filepath.Clean(path), true})
	}
}

// Resolved are the masks under their own names, and as the links that are there now lead to them.
func (m Masks) Resolved() Masks { return Masks{BothNames(m.Fixed), BothNames(m.Hidden)} }

// BothNames adds to paths what they are once the links that are there now are followed.
func BothNames(paths []string) []string {
	out := slices.Clone(paths)
	for _, p := range paths {
		if actual := resolveExisting(p); !slices.Contains(out, actual) {
			out = append(out, actual)
		}
	}
	return out
}

// resolveExisting is a path with the links that are there now followed; the rest of it may come later.
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

// Masked are the masked places that a program would see, or make, which is confined to the places of
// the run: all that lie within one of them, but for those that it may read (see Places).
func (r *Roots) Masked() (out []string) {
	for _, m := range r.masks {
		if r.maskInside(m, false) && !m.readable() {
			out = append(out, m.path)
		}
	}
	return out
}

// readOnlyMasks are the masked places that a program may read, in folders that it may change.
func (r *Roots) readOnlyMasks() (out []string) {
	for _, m := range r.masks {
		if r.maskInside(m, true) && m.readable() {
			out = append(out, m.path)
		}
	}
	return out
}

// maskInside says whether a masked place lies in one of those of the run; with write, in one that it may
// change.
func (r *Roots) maskInside(m mask, write bool) bool {
	return slices.ContainsFunc(r.roots, func(g root) bool {
		_, in := below(g.Path, m.path)
		return in && len(g.Path) < len(m.path) && (g.Write || !write)
	})
}

// readable says whether a masked place can be given to a program to be read: it is there by its one
// name. A link could lead elsewhere by then, and what is not there yet must not be made.
func (m mask) readable() bool {
	actual, err := filepath.EvalSymlinks(m.path)
	return err == nil && actual == m.path && !m.hidden
}

// isMasked says whether a place within a root may not be read, or with write not be changed.
func (r *Roots) isMasked(g *root, abs string, write bool) bool {
	return slices.ContainsFunc(r.masks, func(m mask) bool {
		_, in := below(m.path, abs)
		return in && (m.hidden || write) && len(m.path) >= len(g.Path)
	})
}

func maskError(shown string) error {
	return &PathError{KindRejected, shown + " belongs to rouse itself or to its owner alone: its home, its configuration or its skills; no agent changes those"}
}

// IsHidden says whether something within the place's root, in whatever folder, may not be read.
func (p *FileHandle) IsHidden(rel string) bool {
	return p.isMasked != nil && p.isMasked(filepath.Join(p.Name(), rel), false)
}
