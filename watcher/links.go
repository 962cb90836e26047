package watcher

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"rouse/watcher/fsys"
	"rouse/watcher/tree"
)

const (
	maxAliases   = 16 // maximum number of names that links give to one folder
	linksChanged = "links changed"
)

// linked holds the targets of the links in a folder as of the last scan. A file is claimed by its
// real path. Its names through links only decide whether the watch selects it.
type linked struct {
	links   map[string]bool     // links that were followed
	aliases map[string][]string // names that links give to folders, relative to the root
	files   map[string]bool     // files that are selected because of a link to them
}

// namesOf returns the names of a path relative to the root: its own name and its names through
// links.
func (p *place) namesOf(path, rel string) []string {
	var out []string
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	if p.Recursive || dir == p.root {
		out = append(out, rel)
	}

	for _, name := range p.linked.aliases[dir] {
		out = append(out, name+"/"+base)
	}
	return out
}

// wants reports whether the watch selects a file by any of its names. An exclude that matches the
// real name excludes all of them.
func (p *place) wants(path, rel string) bool {
	if p.linked.files[path] {
		return p.inNoSkippedDir(path)
	}

	for _, name := range p.namesOf(path, rel) {
		if p.Selects(name) && (name == rel || !p.Excludes(rel)) {
			return p.inNoSkippedDir(path)
		}
	}
	return false
}

// follow follows the links that the walk found, and the links behind them, until there are no more.
// It follows each link once, so that loops end. It follows them in the order of their paths, so
// that each scan finds the same names.
func (k *walker) follow(ctx context.Context) {
	for len(k.links) > 0 && ctx.Err() == nil {
		links := k.links
		k.links = nil
		slices.SortFunc(links, func(a, b entry) int { return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.name, b.name)) })

		for _, l := range links {
			if !k.found.linked.links[l.path] {
				k.found.linked.links[l.path] = true
				k.followLink(l)
			}
		}

		k.run(ctx)
	}
}

// followLink adds the target of a link if it is in the watched folder. The link may have changed in
// the meantime, so only the resolved path is checked and used.
func (k *walker) followLink(l entry) {
	f := k.f
	real, err := filepath.EvalSymlinks(l.path)
	if err != nil {
		return // the target is missing, or the link is circular
	}

	rel, ok := fsys.RelInside(f.root, real)
	if !ok || f.Excludes(rel) {
		return
	}

	info, err := fsys.HandleIn(k.root, real).Lstat()
	switch {
	case err != nil:
	case info.IsDir():
		if f.Recursive && f.enters(real, l.name) && !f.selectsAll(rel) && len(k.found.linked.aliases[real]) < maxAliases {
			k.found.linked.addAlias(real, l.name) // at once: several links of a round may lead to one folder
			k.dirs = append(k.dirs, entry{real, l.name})
		}
	case info.Mode().IsRegular() && f.Selects(l.name) && f.inNoSkippedDir(real):
		k.subscribe(filepath.Dir(real)) // the walk may not enter the folder of the file
		k.found.linked.files[real] = true
		if st := fsys.StampOf(info); k.mayNeedWork(real, st) {
			k.found.files = append(k.found.files, tree.Sighting{Path: real, Stamp: st})
		}
	}
}

// selectsAll reports whether a folder's real name selects all files that its names through links
// could select.
func (p *place) selectsAll(rel string) bool {
	return p.Recursive && len(p.Include) == 0 && !p.Prunes(rel)
}

// addAlias records a name through a link of a folder.
func (l *linked) addAlias(dir, name string) {
	if !slices.Contains(l.aliases[dir], name) {
		l.aliases[dir] = append(l.aliases[dir], name)
	}
}

func newLinked() linked {
	return linked{links: map[string]bool{}, aliases: map[string][]string{}, files: map[string]bool{}}
}

// merge adds the links that the walk of a subfolder found.
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

// joinName returns the name of an entry in the folder called name. Both names are relative to the
// root.
func joinName(name, entry string) string {
	if name == "." {
		return entry
	}
	return strings.TrimSuffix(name, "/") + "/" + entry
}
