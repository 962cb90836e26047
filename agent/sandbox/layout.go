package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/fspath"
)

// layout is the set of paths that a command may reach, with all links resolved.
type layout struct {
	dir         string
	read, write []string
	masks       []mask
}

// mask is a hidden path.
type mask struct {
	path string
	// root is the folder in Write that contains the path. It is "" if the command could not write
	// there anyway.
	root    string
	missing bool // the path does not exist yet
	folder  bool
	source  string // file to show instead; optional
}

// newLayout resolves the paths of a command in the current file system. It returns an error if a
// path does not exist or cannot be protected.
func newLayout(c Command) (layout, error) {
	var l layout
	var err error
	if l.dir, err = c.resolve(c.Dir, "the working folder"); err != nil {
		return l, err
	}

	given := map[string]string{} // path in Write → resolved path
	for _, path := range c.Write {
		root, err := c.resolve(path, "what it may write")
		if err != nil {
			return l, err
		}
		given[path] = root
		l.write = append(l.write, root)
	}

	for _, path := range c.Read {
		root, err := c.resolve(path, "what it may read")
		if err != nil {
			return l, err
		}
		if !slices.Contains(l.write, root) {
			l.read = append(l.read, root) // a path that is also in Write is writable
		}
	}

	for _, path := range c.ReadOnly {
		root, err := resolve(path, "what it may not change")
		if err != nil {
			return l, err
		}
		if root != path {
			return l, fmt.Errorf("what it may not change cannot be protected: %s is a link, or lies behind one, in a folder that it may write; put a file or a folder in its place", path)
		}
		l.read = append(l.read, root)
	}

	l.read, l.write = cleanPaths(l.read), cleanPaths(l.write)
	for _, path := range slices.Concat(c.Masked, slices.Collect(maps.Keys(c.Replaced))) {
		if err := l.addMask(path, given); err != nil {
			return l, err
		}
	}

	l.masks = sortedMasks(l.masks)
	for i, m := range l.masks {
		// A link is not replaced: the command may have no access to its target.
		if source := c.Replaced[m.path]; m.root == "" && !m.missing && !m.folder && !slices.Contains(c.Masked, m.path) {
			l.masks[i].source = source
		}
	}
	return l, nil
}

// sortedMasks returns the masks sorted by path, without duplicates.
func sortedMasks(masks []mask) []mask {
	slices.SortFunc(masks, func(a, b mask) int { return strings.Compare(a.path, b.path) })
	return slices.CompactFunc(masks, func(a, b mask) bool { return a.path == b.path })
}

// resolve resolves the links of a path that were created by its owner. It returns an error for
// other links.
func (c Command) resolve(path, what string) (string, error) {
	to, err := c.Boundary.Resolve(path)
	if err == nil {
		_, err = c.Boundary.Stat(to)
	}
	if err != nil {
		return "", fmt.Errorf("%s cannot be used: %w", what, err)
	}
	return to, nil
}

func resolve(path, what string) (string, error) {
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("%s cannot be used: %w", what, err)
	}
	return to, nil
}

// addMask hides a path in each place where the command could find it. The places are its resolved
// path, and its path below the resolved folders of Write.
func (l *layout) addMask(path string, given map[string]string) error {
	places := []string{resolveExisting(path)}
	for from, to := range given {
		if fspath.Within(path, from) {
			places = append(places, to+path[len(from):])
		}
	}

	for _, place := range cleanPaths(places) {
		m, err := l.inspect(place)
		if err != nil {
			return err
		}
		if m.root == "" && m.missing {
			continue // the command cannot create it
		}
		l.masks = append(l.masks, m)
	}

	return nil
}

// resolveExisting resolves the links in the existing part of a path.
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

// inspect returns the mask for a path. Within Write it returns an error for links on the way,
// because the command could replace them.
func (l *layout) inspect(path string) (mask, error) {
	m := mask{path: path}
	for _, root := range l.write { // sorted, so the last match is the innermost
		if fspath.Within(path, root) && !l.readOnlyBetween(path, root) {
			m.root = root
		}
	}

	// The command cannot change links on the way to it.
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
			// A command that cannot create this folder cannot create the path in it.
			return mask{path: at, root: m.root, missing: true}, nil
		case err != nil:
			return m, fmt.Errorf("what it may not reach cannot be hidden: %w", err)
		case info.Mode().Type() == fs.ModeSymlink:
			return m, fmt.Errorf("what it may not reach cannot be hidden: %s is a link in a folder that it may write; put a file or a folder in its place", at)
		}

		m.folder = info.IsDir()
		if !m.folder && at != path {
			// A file has the name of a folder. The command could replace the file with a folder.
			return mask{path: at, root: m.root}, nil
		}
	}

	return m, nil
}

// readOnlyBetween reports whether a read-only folder lies between a path and the writable root
// above it.
func (l *layout) readOnlyBetween(path, root string) bool {
	return slices.ContainsFunc(l.read, func(r string) bool { return r != root && fspath.Within(r, root) && fspath.Within(path, r) })
}

// pins returns the writable folders above all paths with other rights than their surroundings. They
// must not be moved. Otherwise the command could move one away and create the path below it with
// any content.
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

// writable reports whether the most specific rule for a path allows writing.
func (l layout) writable(path string) bool {
	longest := func(paths []string) int {
		n := -1
		for _, p := range paths {
			if fspath.Within(path, p) {
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
