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

// ProgramPaths returns the folders and files that a program of the run may read, and those that it
// may write, with links resolved. It includes grants with OmitFromMessages only if argv names them,
// because there can be a thousand and each slows down the start of the program.
func (r *Roots) ProgramPaths(argv []string) (read, write []string) {
	for _, g := range r.roots {
		named := func(arg string) bool { return strings.Contains(arg, g.Path) || strings.Contains(arg, g.named) }
		if g.OmitFromMessages && !slices.ContainsFunc(argv, named) {
			continue
		}

		// Skip paths in a writable root: the run may have replaced them with links, and the program
		// sees them through that root. Also skip a single file that is no longer regular, because
		// it may be a link.
		if info, err := r.lstat(g.Path); r.insideWritable(g) || err != nil || g.File && !info.Mode().IsRegular() {
			continue
		}

		if g.Write {
			write = append(write, g.Path)
		} else {
			read = append(read, g.Path)
		}
	}

	// Masked places cannot have been replaced with links, because the run cannot change them.
	return append(read, r.readOnlyMasks()...), write
}

// lstat returns the file info of a root's path. It returns an error if another agent has replaced a
// part of the path with a link.
func (r *Roots) lstat(path string) (fs.FileInfo, error) {
	if r.boundary.Holds(path) != "" {
		return r.boundary.Stat(path)
	}
	return os.Lstat(path)
}

// Boundary returns the folders in which other parties than the owner could create links.
func (r *Roots) Boundary() nofollow.UntrustedDirs { return r.boundary }

// ProgramMasks returns the masked places within the roots that must be hidden from a program or
// that it must not create. It includes files with secrets if HideSecrets was called. It omits
// masked places that the program may read.
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

// HiddenIn returns the hidden places, such as the home of rouse, that a program would see in the
// folders read and write. It returns an error if a folder in read lies in a hidden place, unless
// the folder lies in own or in a folder in write.
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

// readOnlyMasks returns the masked places in writable roots that a program may read.
func (r *Roots) readOnlyMasks() (out []string) {
	for _, m := range r.masks {
		if r.maskInside(m, true) && m.readable() {
			out = append(out, m.path)
		}
	}
	return out
}

// maskInside reports whether a masked place lies in a root. If write is set, only writable roots
// count.
func (r *Roots) maskInside(m mask, write bool) bool {
	return slices.ContainsFunc(r.roots, func(g root) bool {
		_, in := below(g.Path, m.path)
		return in && (g.Write || !write)
	})
}

// readable reports whether a program may read a masked place. It returns false for a link, because
// the link could change before the program starts. It also returns false for a missing file,
// because the sandbox must not create it.
func (m mask) readable() bool {
	actual, err := filepath.EvalSymlinks(m.path)
	return err == nil && actual == m.path && !m.hidden
}
