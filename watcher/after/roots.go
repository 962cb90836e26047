package after

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rouse/internal/nofollow"
	"rouse/internal/owner"
	"rouse/watcher/fsys"
)

// allowedRoots holds the folders in which files of a watch may be: the watched folder, which no
// path below it can leave, and the destinations that its owner has named.
type allowedRoots struct {
	folder *Folder
	root   *os.Root // nil if the folder does not exist
	path   string
	opened []*os.Root
}

func openRoots(folder *Folder) (*allowedRoots, error) {
	path, err := folder.Boundary.Resolve(folder.Path)
	if err != nil {
		path = folder.Path // opening the folder returns the error
	}

	g := &allowedRoots{folder: folder, path: path}
	root, err := folder.Boundary.OpenRoot(g.path)
	if err == nil {
		g.root = root
		g.opened = append(g.opened, root)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	return g, nil
}

func (g *allowedRoots) close() {
	for _, root := range g.opened {
		root.Close()
	}
}

// contains reports whether a path is in the watched folder.
func (g *allowedRoots) contains(path string) bool {
	_, ok := fsys.RelInside(g.path, path)
	return ok
}

// openDir opens a folder, and creates it first if create is set. A folder in the watched folder is
// opened relative to it and without following links. A link that stays inside could still lead to a
// place that files of others must not reach, such as a repository. Other destinations are opened by
// the path that their owner has named, where others cannot create links.
func (g *allowedRoots) openDir(dir string, create bool) (*os.Root, error) {
	dir = filepath.Clean(dir)
	// Try the real path first, then the configured path, which may contain links.
	rel, in := fsys.RelInside(g.path, dir)
	if !in {
		rel, in = fsys.RelInside(g.folder.Path, dir)
	}

	var root *os.Root
	var err error
	switch {
	case in && g.root == nil:
		return nil, fmt.Errorf("%s: %w", dir, fs.ErrNotExist)
	case in:
		if rel = filepath.FromSlash(rel); create {
			root, err = nofollow.MakeBelow(g.root, rel, owner.ApplyUmask(0o755))
		} else {
			root, err = nofollow.OpenBelow(g.root, rel)
		}
	case create:
		root, err = g.folder.Boundary.MakeRoot(dir, owner.ApplyUmask(0o755))
	default:
		root, err = g.folder.Boundary.OpenRoot(dir)
	}
	if err != nil {
		return nil, err
	}

	g.opened = append(g.opened, root)
	return root, nil
}

// openDestination opens a folder below a destination without following links.
func (g *allowedRoots) openDestination(dir, below string, create bool) (*os.Root, error) {
	root, err := g.openDir(dir, create)
	if err != nil || below == "" {
		return root, err
	}
	if create {
		root, err = nofollow.MakeBelow(root, below, owner.ApplyUmask(0o755))
	} else {
		root, err = nofollow.OpenBelow(root, below)
	}
	if err == nil {
		g.opened = append(g.opened, root)
	}
	return root, err
}

// handle returns the handle of a file in the watched folder or in another folder, which it opens.
func (g *allowedRoots) handle(path string) (fsys.Handle, error) {
	if rel, in := fsys.RelInside(g.path, path); in && g.root != nil {
		return fsys.Handle{Root: g.root, Name: filepath.FromSlash(rel)}, nil
	}
	root, err := g.openDir(filepath.Dir(path), false)
	return fsys.Handle{Root: root, Name: filepath.Base(path)}, err
}
