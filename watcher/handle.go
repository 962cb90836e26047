package watcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rouse/internal/nofollow"
	"rouse/internal/owner"
)

// fileHandle names a file below a folder that is held open: whatever links somebody puts in
// the way meanwhile, no call leaves that folder.
type fileHandle struct {
	root *os.Root
	name string // relative to root
}

// handleIn returns the handle of a file or folder in root, given its path. It opens nothing.
func handleIn(root *os.Root, path string) fileHandle {
	rel, ok := relInside(root.Name(), path)
	if !ok {
		rel = "."
	}
	return fileHandle{root, filepath.FromSlash(rel)}
}

func (s fileHandle) path() string { return filepath.Join(s.root.Name(), s.name) }

func (s fileHandle) lstat() (fs.FileInfo, error) { return s.root.Lstat(s.name) }

func (s fileHandle) open() (*os.File, error) {
	return s.root.OpenFile(s.name, os.O_RDONLY|openFlags, 0)
}

func (s fileHandle) remove() error { return s.root.Remove(s.name) }

// sibling is a file of another name in the same folder.
func (s fileHandle) sibling(name string) fileHandle {
	return fileHandle{s.root, filepath.Join(filepath.Dir(s.name), name)}
}

// openHandle opens the folder of a file that may be anywhere; the caller closes its root.
func openHandle(b nofollow.Boundary, path string) (fileHandle, error) {
	root, err := b.OpenRoot(filepath.Dir(path))
	return fileHandle{root, filepath.Base(path)}, err
}

// allowedRoots are the folders that files of a watch may be in: the watched one, which no path
// that starts there can leave, and the destinations that its owner has named.
type allowedRoots struct {
	watch  *Watch
	root   *os.Root // nil when the folder is not there
	path   string
	opened []*os.Root
}

func openRoots(watch *Watch) (*allowedRoots, error) {
	g := &allowedRoots{watch: watch, path: watch.resolveLinks(watch.Path)}
	root, err := watch.Boundary.OpenRoot(g.path)
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

// contains says whether a path is in the watched folder.
func (g *allowedRoots) contains(path string) bool {
	_, ok := relInside(g.path, path)
	return ok
}

// openDir opens a folder, and creates it first if that is wanted. One in the watched folder is
// opened by way of that one, through no link: one that stays within may still lead to what is not for files of
// others, a repository for one. Destinations elsewhere are opened as their owner has named them, where nobody else
// can make links.
func (g *allowedRoots) openDir(dir string, create bool) (*os.Root, error) {
	dir = filepath.Clean(dir)
	// By its real path or, as the configuration may have it, by the path with links.
	rel, in := relInside(g.path, dir)
	if !in {
		rel, in = relInside(g.watch.Path, dir)
	}

	var root *os.Root
	var err error
	switch {
	case in && g.root == nil:
		return nil, fmt.Errorf("%s: %w", dir, fs.ErrNotExist)
	case in:
		if rel = filepath.FromSlash(rel); create {
			root, err = nofollow.MakeBelow(g.root, rel, owner.Usual(0o755))
		} else {
			root, err = nofollow.OpenBelow(g.root, rel)
		}
	case create:
		root, err = g.watch.Boundary.MakeRoot(dir, owner.Usual(0o755))
	default:
		root, err = g.watch.Boundary.OpenRoot(dir)
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
		root, err = nofollow.MakeBelow(root, below, owner.Usual(0o755))
	} else {
		root, err = nofollow.OpenBelow(root, below)
	}
	if err == nil {
		g.opened = append(g.opened, root)
	}
	return root, err
}

// handle is a file in the watched folder, or in another one, which is opened for it.
func (g *allowedRoots) handle(path string) (fileHandle, error) {
	if rel, in := relInside(g.path, path); in && g.root != nil {
		return fileHandle{g.root, filepath.FromSlash(rel)}, nil
	}
	root, err := g.openDir(filepath.Dir(path), false)
	return fileHandle{root, filepath.Base(path)}, err
}
