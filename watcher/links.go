package watcher

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxAliases   = 16 // names of one folder by links to it
	linksChanged = "links changed"
)

// linked is what links in a folder lead to, as of the last scan. A file is what it is by its
// real path, whatever leads there; names by links only say that it is taken.
type linked struct {
	links   map[string]bool     // that were followed
	aliases map[string][]string // names that links give to folders, relative to the root
	files   map[string]bool     // that are taken because of a link to them
}

// link is one that a walk came across, with its name relative to the root.
type link struct{ path, name string }

// namesOf are what a path can be called, relative to the root: by itself and by links.
func (f *folder) namesOf(path, rel string) []string {
	var out []string
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	if f.Recursive || dir == f.root {
		out = append(out, rel)
	}

	for _, name := range f.linked.aliases[dir] {
		out = append(out, name+"/"+base)
	}
	return out
}

// wants says whether the watch is for a file, by any of its names. Excludes hold for each of
// them.
func (f *folder) wants(path, rel string) bool {
	if f.linked.files[path] {
		return f.inNoSkippedDir(path)
	}

	for _, name := range f.namesOf(path, rel) {
		if f.selects(name) && (name == rel || !matchesAny(f.Exclude, rel)) {
			return f.inNoSkippedDir(path)
		}
	}
	return false
}

// follow follows links that the walk came across, in the order of their paths, and what is
// found by that, until there are no more: each of them once, so that loops end.
func (k *walker) follow(ctx context.Context) {
	for len(k.links) > 0 && ctx.Err() == nil {
		links := k.links
		k.links = nil
		slices.SortFunc(links, func(a, b link) int { return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.name, b.name)) })

		for _, l := range links {
			if !k.found.linked.links[l.path] {
				k.found.linked.links[l.path] = true
				k.followLink(ctx, l)
			}
		}

		k.run()
	}
}

// followLink looks where a link leads. What is not in the watched folder is none of its
// business, and a link may be another by now: what is used is the path that was resolved,
// which is checked, not the link.
func (k *walker) followLink(ctx context.Context, l link) {
	f := k.f
	real, err := filepath.EvalSymlinks(l.path)
	if err != nil {
		return // it leads to nothing, or in a circle
	}

	rel, ok := relInside(f.root, real)
	if !ok || matchesAny(f.Exclude, rel) {
		return
	}

	info, err := os.Lstat(real)
	switch {
	case err != nil:
	case info.IsDir():
		if f.Recursive && f.enters(real, l.name) && !f.selectsAll(rel) && len(k.found.linked.aliases[real]) < maxAliases {
			k.add(func() { k.enterDir(ctx, real, l.name) })
		}
	case info.Mode().IsRegular() && f.selects(l.name) && f.inNoSkippedDir(real):
		k.subscribe(filepath.Dir(real)) // it may be in none that is entered
		k.found.linked.files[real] = true
		if st := stampOf(info); k.mayNeedWork(real, st) {
			k.found.files = append(k.found.files, sighting{real, st})
		}
	}
}

// selectsAll says whether other names of a folder take no more files of it than its own does.
func (f *folder) selectsAll(rel string) bool {
	return f.Recursive && len(f.Include) == 0 && !f.prunes(rel)
}

// addAlias notes that a folder is reached by a link, or is in one that is.
func (l *linked) addAlias(dir, name string) {
	if !slices.Contains(l.aliases[dir], name) {
		l.aliases[dir] = append(l.aliases[dir], name)
	}
}

func newLinked() linked {
	return linked{links: map[string]bool{}, aliases: map[string][]string{}, files: map[string]bool{}}
}

// merge adds what a walk of a part of the folder found.
func (l *linked) merge(o linked) {
	for path := range o.links {
		l.links[path] = true
	}

	for dir, names := range o.aliases {
		for _, name := range names {
			l.addAlias(dir, name)
		}
	}

	for path := range o.files {
		l.files[path] = true
	}
}

// joinName is the name of an entry of a folder that has a name.
func joinName(name, entry string) string {
	if name == "." {
		return entry
	}
	return strings.TrimSuffix(name, "/") + "/" + entry
}
