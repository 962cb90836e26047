package tool

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/nofollow"
)

// ProgramPaths lists the folders and files that a program of the run may read, and may change, with
// links resolved. Of grants with OmitFromMessages it lists those that argv names: there may be a
// thousand, and each costs time when the program starts.
func (r *Roots) ProgramPaths(argv []string) (read, write []string) {
	for _, g := range r.roots {
		named := func(arg string) bool { return strings.Contains(arg, g.Path) || strings.Contains(arg, g.named) }
		if g.OmitFromMessages && !slices.ContainsFunc(argv, named) {
			continue
		}

		// What lies in a writable root may have been replaced by a link, and is visible with that root
		// anyway; a single file that is no regular file any more may be a link, too.
		if info, err := r.lstat(g.Path); r.insideWritable(g) || err != nil || g.File && !info.Mode().IsRegular() {
			continue
		}

		if g.Write {
			write = append(write, g.Path)
		} else {
			read = append(read, g.Path)
		}
	}

	// Nobody can put a link in the place of these: the run cannot change what is masked.
	return append(read, r.readOnlyMasks()...), write
}

// lstat describes a root's path. It returns an error if somebody put a link on the way.
func (r *Roots) lstat(path string) (fs.FileInfo, error) {
	if r.boundary.Holds(path) != "" {
		return r.boundary.Stat(path)
	}
	return os.Lstat(path)
}

// Boundary returns the folders in which others than the owner could make links to the roots.
func (r *Roots) Boundary() nofollow.UntrustedDirs { return r.boundary }

// ProgramMasks lists the masked places within the roots that a program would see or could create,
// and files with secrets if they are hidden. Masked places that it may read are left out.
func (r *Roots) ProgramMasks() (out []string) {
	for _, m := range r.masks {
		if r.maskInside(m, false) && !m.readable() {
			out = append(out, m.path)
		}
	}
	if r.hideSecrets {
		out = append(out, r.secretMasks()...)
	}
	return out
}

// HiddenIn lists the hidden places, such as the home of rouse, that a program would see in the
// folders it is given. A folder to read within such a place is an error, unless it lies in own.
func (r *Roots) HiddenIn(read, write []string, own string) (out []string, err error) {
	read = WithResolvedLinks(read)
	lifted := write
	if own != "" {
		lifted = append([]string{own}, write...)
	}
	within := func(paths []string, abs string) bool {
		return slices.ContainsFunc(paths, func(p string) bool { _, in := below(p, abs); return in })
	}
	for _, m := range r.masks {
		if !m.hidden {
			continue
		}
		for _, given := range read {
			rest, in := below(m.path, given)
			if in && rest != "" && !within(WithResolvedLinks(lifted), given) {
				return nil, fmt.Errorf("%s lies in %s, which belongs to rouse itself and which no program gets to see; name another folder", given, m.path)
			}
		}
		if within(slices.Concat(read, WithResolvedLinks(write)), m.path) {
			out = append(out, m.path)
		}
	}
	return out, nil
}

// readOnlyMasks are the masked places in writable roots that a program may read.
func (r *Roots) readOnlyMasks() (out []string) {
	for _, m := range r.masks {
		if r.maskInside(m, true) && m.readable() {
			out = append(out, m.path)
		}
	}
	return out
}

// maskInside reports whether a masked place lies in a root; if write is set, in a writable one.
func (r *Roots) maskInside(m mask, write bool) bool {
	return slices.ContainsFunc(r.roots, func(g root) bool {
		_, in := below(g.Path, m.path)
		return in && (g.Write || !write)
	})
}

// readable reports whether a program may be given a masked place to read. A link could lead
// elsewhere by then, and a missing file must not be created.
func (m mask) readable() bool {
	actual, err := filepath.EvalSymlinks(m.path)
	return err == nil && actual == m.path && !m.hidden
}
