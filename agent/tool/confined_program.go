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

// ProgramPaths lists, with links resolved, the folders and files of the run for a program that is confined
// to them: what it may read, and what it may change as well. Of the grants that are Unnamed, of which
// there may be a thousand, it lists those that argv names: each one costs time when the program starts.
func (r *Roots) ProgramPaths(argv []string) (read, write []string) {
	for _, g := range r.roots {
		if g.OmitFromMessages && !slices.ContainsFunc(argv, g.mentionedIn) {
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

// lstat describes what a root's path names now, and is an error where somebody put a link on the way.
func (r *Roots) lstat(path string) (fs.FileInfo, error) {
	if r.boundary.Holds(path) != "" {
		return r.boundary.Stat(path)
	}
	return os.Lstat(path)
}

// Boundary is where others than the owner could make links on the way to the roots.
func (r *Roots) Boundary() nofollow.Boundary { return r.boundary }

// mentionedIn reports whether an argument holds the root's path.
func (g root) mentionedIn(text string) bool {
	return strings.Contains(text, g.Path) || strings.Contains(text, g.named)
}

// ProgramMasks lists the masked places that a confined program would see, or could create: all within the
// roots, except for those that it may read (see Places), and files with secrets if they are hidden.
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

// HiddenIn lists the hidden places, such as the home of rouse, that a program would see in the folders that it is given. An error
// names a folder to read that lies in such a place; own is the folder there of what rouse makes for programs, "" if there is none.
func (r *Roots) HiddenIn(read, write []string, own string) (out []string, err error) {
	read = WithResolvedLinks(read)
	for _, m := range r.masks {
		if !m.hidden {
			continue
		}
		for _, given := range read {
			rest, in := below(m.path, given)
			if in && rest != "" && !holdsAny(given, own, write) {
				return nil, fmt.Errorf("%s lies in %s, which belongs to rouse itself and which no program gets to see; name another folder", given, m.path)
			}
		}
		if slices.ContainsFunc(slices.Concat(read, WithResolvedLinks(write)), func(given string) bool { _, in := below(given, m.path); return in }) {
			out = append(out, m.path)
		}
	}
	return out, nil
}

func holdsAny(abs, own string, folders []string) bool {
	if own != "" {
		folders = append([]string{own}, folders...)
	}
	return slices.ContainsFunc(WithResolvedLinks(folders), func(f string) bool { _, in := below(f, abs); return in })
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

// maskInside reports whether a masked place lies in a root, with write in a writable one.
func (r *Roots) maskInside(m mask, write bool) bool {
	return slices.ContainsFunc(r.roots, func(g root) bool {
		_, in := below(g.Path, m.path)
		return in && (g.Write || !write)
	})
}

// readable reports whether a program may be given a masked place to read: it exists, by its one name.
// A link could lead elsewhere by then, and what does not exist yet must not be created.
func (m mask) readable() bool {
	actual, err := filepath.EvalSymlinks(m.path)
	return err == nil && actual == m.path && !m.hidden
}
