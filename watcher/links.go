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
	maxCalled    = 16 // names of one folder by links to it
	linksChanged = "links changed"
)

// linked is what links in a folder lead to, as of the last scan. A file is what it is by its
// real path, whatever leads there; names by links only say that it is taken.
type linked struct {
	links  map[string]bool     // that were followed
	called map[string][]string // names that links give to folders, relative to the root
	files  map[string]bool     // that are taken because of a link to them
}

// link is one that a walk came across, with its name relative to the root.
type link struct{ path, name string }

// names are what a path can be called, relative to the root: by itself and by links.
func (f *folder) names(path, rel string) []string {
	var out []string
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	if f.Recursive || dir == f.root {
		out = append(out, rel)
	}

	for _, name := range f.linked.called[dir] {
		out = append(out, name+"/"+base)
	}
	return out
}

// wants says whether the watch is for a file, by any of its names. Excludes hold for each of
// them.
func (f *folder) wants(path, rel string) bool {
	if f.linked.files[path] {
		return f.open(path)
	}

	for _, name := range f.names(path, rel) {
		if f.takes(name) && (name == rel || !matchesAny(f.Exclude, rel)) {
			return f.open(path)
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
				k.followOne(ctx, l)
			}
		}

		k.run()
	}
}

// followOne looks where a link leads. What is not in the watched folder is none of its
// business, and a link may be another by now: what is used is the path that was resolved,
// which is checked, not the link.
func (k *walker) followOne(ctx context.Context, l link) {
	f := k.f
	real, err := filepath.EvalSymlinks(l.path)
	if err != nil {
		return // it leads to nothing, or in a circle
	}

	rel, ok := inside(f.root, real)
	if !ok || matchesAny(f.Exclude, rel) {
		return
	}

	info, err := os.Lstat(real)
	switch {
	case err != nil:
	case info.IsDir():
		if f.Recursive && f.enters(real, l.name) && !f.takesAll(rel) && len(k.found.linked.called[real]) < maxCalled {
			k.add(func() { k.enter(ctx, real, l.name) })
		}
	case info.Mode().IsRegular() && f.takes(l.name) && f.open(real):
		k.arm(filepath.Dir(real)) // it may be in none that is entered
		k.found.linked.files[real] = true
		if st := stampOf(info); k.isWork(real, st) {
			k.found.files = append(k.found.files, sighting{real, st})
		}
	}
}

// takesAll says whether other names of a folder take no more files of it than its own does.
func (f *folder) takesAll(rel string) bool {
	return f.Recursive && len(f.Include) == 0 && !f.prunes(rel)
}

// call notes that a folder is reached by a link, or is in one that is.
func (l *linked) call(dir, name string) {
	if !slices.Contains(l.called[dir], name) {
		l.called[dir] = append(l.called[dir], name)
	}
}

func newLinked() linked {
	return linked{links: map[string]bool{}, called: map[string][]string{}, files: map[string]bool{}}
}

// join adds what a walk of a part of the folder found.
func (l *linked) join(o linked) {
	for path := range o.links {
		l.links[path] = true
	}

	for dir, names := range o.called {
		for _, name := range names {
			l.call(dir, name)
		}
	}

	for path := range o.files {
		l.files[path] = true
	}
}

// within is the name of an entry of a folder that has a name.
func within(name, entry string) string {
	if name == "." {
		return entry
	}
	return strings.TrimSuffix(name, "/") + "/" + entry
}
