package tool

import (
	"context"
	"os"
	"slices"
	"strings"
)

// Places are the folders and files that a run may reach, with links resolved, for a program that
// is confined to them: what it may read, and what it may change as well. Of those that are Unnamed,
// which may be a thousand, it gets what argv names: each of them costs at the start. Whoever confines follows
// links; so what lies in a folder that the run may write is not named besides, for what is there
// may be a link by then, and a single file that is none any more is left out. Of what is masked there
// and may be read, nobody could make a link.
func (r *Roots) Places(argv []string) (read, write []string) {
	for _, g := range r.roots {
		if g.Unnamed && !slices.ContainsFunc(argv, g.mentionedIn) {
			continue
		}
		if info, err := os.Lstat(g.Path); r.insideWritable(g) || err != nil || g.File && !info.Mode().IsRegular() {
			continue
		}

		if g.Write {
			write = append(write, g.Path)
		} else {
			read = append(read, g.Path)
		}
	}
	return append(read, r.readOnlyMasks()...), write
}

// mentionedIn says whether a text holds the place's path.
func (g root) mentionedIn(text string) bool {
	return strings.Contains(text, g.Path) || strings.Contains(text, g.named)
}

// insideWritable says whether a place lies in another one that the run may write.
func (r *Roots) insideWritable(g root) bool {
	for _, w := range r.roots {
		if rest, in := below(w.Path, g.Path); in && rest != "" && w.Write && !w.File {
			return true
		}
	}
	return false
}

// openRoot opens a granted folder. One that lies in a place which the run may write is opened from
// there, so that no link which was put into its place leads out.
func (r *Roots) openRoot(folder string) (*os.Root, error) {
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

// escapesByLink says whether a place is named within one that the run may write, and lies outside of it:
// the run, or an earlier one, may have made the link by which it does.
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

// Labels are those of all that lies in the places of the run: a program can read any of it.
func (r *Roots) Labels(ctx context.Context) (Taint, error) {
	labels, err := r.MemoryTaint(ctx)
	for _, g := range r.roots {
		if g.Private {
			labels |= Private
		}
		if g.Untrusted || r.overlapsUntrusted(g.Path) {
			labels |= Untrusted
		}
	}

	return labels, err
}
