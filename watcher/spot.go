package watcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// spot is a file in a folder that is held open: whatever links somebody puts in the way
// meanwhile, that folder is not left.
type spot struct {
	root *os.Root
	name string // relative to it
}

func (s spot) path() string { return filepath.Join(s.root.Name(), s.name) }

func (s spot) lstat() (fs.FileInfo, error) { return s.root.Lstat(s.name) }

func (s spot) open() (*os.File, error) { return s.root.OpenFile(s.name, os.O_RDONLY|openFlags, 0) }

func (s spot) remove() error { return s.root.Remove(s.name) }

// beside is another name in the same folder.
func (s spot) beside(name string) spot {
	return spot{s.root, filepath.Join(filepath.Dir(s.name), name)}
}

// spotOf is a file that is anywhere; its folder is to be closed.
func spotOf(path string) (spot, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	return spot{root, filepath.Base(path)}, err
}

// ground is where the files of a watch may be: in its folder, out of which no way leads that
// begins there, and in the folders that its owner has named.
type ground struct {
	watch *Watch
	root  *os.Root // nil when the folder is not there
	path  string
	held  []*os.Root
}

func newGround(watch *Watch) (*ground, error) {
	g := &ground{watch: watch, path: resolved(watch.Path)}
	root, err := os.OpenRoot(g.path)
	if err == nil {
		g.root = root
		g.held = append(g.held, root)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	return g, nil
}

func (g *ground) close() {
	for _, root := range g.held {
		root.Close()
	}
}

// holds says whether a path is in the watched folder.
func (g *ground) holds(path string) bool {
	_, ok := inside(g.path, path)
	return ok
}

// folder opens a folder, and makes it before if that is wanted.
func (g *ground) folder(dir string, create bool) (*os.Root, error) {
	dir = filepath.Clean(dir)
	rel, in := inside(g.path, dir)
	if !in {
		rel, in = inside(g.watch.Path, dir)
	}

	var root *os.Root
	var err error
	switch {
	case in && g.root == nil:
		return nil, fmt.Errorf("%s: %w", dir, fs.ErrNotExist)
	case in:
		rel = filepath.FromSlash(rel)
		if create {
			err = g.root.MkdirAll(rel, 0o755)
		}
		if err == nil {
			root, err = g.root.OpenRoot(rel)
		}
	default:
		if create {
			err = os.MkdirAll(dir, 0o755)
		}
		if err == nil {
			root, err = os.OpenRoot(dir)
		}
	}
	if err != nil {
		return nil, err
	}

	g.held = append(g.held, root)
	return root, nil
}

// spot is a file in the watched folder, or in one of the others.
func (g *ground) spot(path string) (spot, error) {
	if rel, in := inside(g.path, path); in && g.root != nil {
		return spot{g.root, filepath.FromSlash(rel)}, nil
	}
	root, err := g.folder(filepath.Dir(path), false)
	return spot{root, filepath.Base(path)}, err
}
