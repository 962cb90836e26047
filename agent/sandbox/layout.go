package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// layout is what a command may reach, with every link followed.
type layout struct {
	dir         string
	read, write []string
	masks       []mask
}

// mask is a path that is hidden.
type mask struct {
	path    string
	root    string // of the folder in Write that it lies in; "" when the command could not write it anyway
	missing bool   // nothing has that name yet
	folder  bool
}

// newLayout looks at the paths of a command as they are on this machine now.
func newLayout(c Command) (layout, error) {
	var l layout
	var err error
	if l.dir, err = resolve(c.Dir, "the working folder"); err != nil {
		return l, err
	}

	given := map[string]string{} // what Write says → where that is
	for _, path := range c.Write {
		root, err := resolve(path, "what it may write")
		if err != nil {
			return l, err
		}
		given[path] = root
		l.write = append(l.write, root)
	}

	for _, path := range c.Read {
		root, err := resolve(path, "what it may read")
		if err != nil {
			return l, err
		}
		if !slices.Contains(l.write, root) {
			l.read = append(l.read, root)
		}
	}

	l.read, l.write = cleanPaths(l.read), cleanPaths(l.write)
	for _, path := range c.Masked {
		if err := l.addMask(path, given); err != nil {
			return l, err
		}
	}

	slices.SortFunc(l.masks, func(a, b mask) int { return strings.Compare(a.path, b.path) })
	l.masks = slices.CompactFunc(l.masks, func(a, b mask) bool { return a.path == b.path })
	return l, nil
}

func resolve(path, what string) (string, error) {
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("%s cannot be used: %w", what, err)
	}
	return to, nil
}

// addMask adds a path: where its name is, and where links lead it.
func (l *layout) addMask(path string, given map[string]string) error {
	places := []string{resolveExisting(path)}
	for from, to := range given {
		if within(path, from) {
			places = append(places, to+path[len(from):])
		}
	}

	for _, place := range cleanPaths(places) {
		m, err := l.inspect(place)
		if err != nil {
			return err
		}
		if m.root == "" && m.missing {
			continue // neither there, nor can it be made
		}
		l.masks = append(l.masks, m)
	}

	return nil
}

// resolveExisting follows the links of the part of a path that exists.
func resolveExisting(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}

	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolveExisting(parent), filepath.Base(path))
}

// inspect finds out what is at a path. Within Write, a link on the way could be made into another one.
func (l *layout) inspect(path string) (mask, error) {
	m := mask{path: path}
	for _, root := range l.write { // the last one is the innermost
		if within(path, root) && !l.readOnlyBetween(path, root) {
			m.root = root
		}
	}

	if m.root == "" || m.root == path {
		info, err := os.Stat(path)
		m.missing, m.folder = err != nil, err == nil && info.IsDir()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return m, fmt.Errorf("what it may not reach cannot be hidden: %w", err)
		}
		return m, nil
	}

	at := m.root
	for name := range strings.SplitSeq(strings.TrimPrefix(path[len(m.root):], string(filepath.Separator)), string(filepath.Separator)) {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return mask{path: at, root: m.root, missing: true}, nil
		case err != nil:
			return m, fmt.Errorf("what it may not reach cannot be hidden: %w", err)
		case info.Mode().Type() == fs.ModeSymlink:
			return m, fmt.Errorf("what it may not reach cannot be hidden: %s is a link in a folder that it may write; put a file or a folder in its place", at)
		}

		m.folder = info.IsDir()
		if !m.folder && at != path {
			return mask{path: at, root: m.root}, nil // a file in the place of a folder on the way
		}
	}

	return m, nil
}

// readOnlyBetween says whether a folder that may only be read lies between a path and the root above it.
func (l *layout) readOnlyBetween(path, root string) bool {
	return slices.ContainsFunc(l.read, func(r string) bool { return r != root && within(r, root) && within(path, r) })
}

// pins are the folders on the way to what is hidden or given otherwise than its surroundings.
// Whoever could move one of them away could make the name anew.
func (l layout) pins() []string {
	var out []string
	places := slices.Concat(l.read, l.write)
	for _, m := range l.masks {
		places = append(places, m.path)
	}

	for _, path := range places {
		for at := filepath.Dir(path); l.writable(at) && !slices.Contains(l.write, at); at = filepath.Dir(at) {
			out = append(out, at)
		}
	}
	return cleanPaths(out)
}

// writable says whether the innermost thing that was said of a path is that it may be written.
func (l layout) writable(path string) bool {
	longest := func(paths []string) int {
		n := -1
		for _, p := range paths {
			if within(path, p) {
				n = max(n, len(p))
			}
		}
		return n
	}

	var hidden []string
	for _, m := range l.masks {
		hidden = append(hidden, m.path)
	}

	n := longest(l.write)
	return n > longest(l.read) && n > longest(hidden)
}
