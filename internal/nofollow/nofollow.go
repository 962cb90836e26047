package nofollow

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// maxLinks is the maximum number of links that locate follows in a path, as in operating systems.
const maxLinks = 40

// UntrustedDirs is a set of folders below which other users or agents can create names. Links below
// these folders are not followed. The zero Boundary has no folders, so it follows every link.
type UntrustedDirs struct {
	folders map[string]bool // resolved, clean and folded paths
}

// NewBoundary returns the boundary of absolute folders. Missing folders are included by name.
func NewBoundary(folders ...string) UntrustedDirs { return NewStatCache().UntrustedDirs(folders...) }

// StatCache resolves many paths at about the same time. It caches each name that it has looked at.
type StatCache struct{ names map[string]seen }

// seen is the cached state of a path: a link with its target, another file or folder, or missing.
type seen struct {
	link, missing bool
	to            string
	err           error // error of reading a link
}

// NewStatCache returns an empty Glance.
func NewStatCache() *StatCache { return &StatCache{names: map[string]seen{}} }

// UntrustedDirs is like NewBoundary, but uses the cache.
func (g *StatCache) UntrustedDirs(folders ...string) UntrustedDirs {
	type folder struct {
		path          string
		linked, depth int
	}
	all := make([]folder, len(folders))
	for i, path := range folders {
		all[i] = folder{path, 1, len(elements(path))}
		if at, err := (UntrustedDirs{}).locate(path, g.look); err == nil && at.resolved == filepath.Clean(path) {
			all[i].linked = 0
		}
	}

	// Process outer folders first. A folder inside another one is already covered, and its name may
	// have become a link. Process folders reached through links last, because these links may lie
	// in the other folders.
	slices.SortStableFunc(all, func(x, y folder) int { return cmp.Or(x.linked-y.linked, x.depth-y.depth) })

	b := UntrustedDirs{map[string]bool{}}
	for _, f := range all {
		if at, err := b.locate(f.path, g.look); err == nil && at.folder == "" {
			b.folders[fold(at.resolved)] = true
		}
	}
	return b
}

// Resolve resolves all links of a path.
func (g *StatCache) Resolve(path string) (string, error) {
	at, err := (UntrustedDirs{}).locate(path, g.look)
	return at.resolved, err
}

func (g *StatCache) look(path string) seen {
	at, ok := g.names[path]
	if !ok {
		at = look(path)
		g.names[path] = at
	}
	return at
}

// look returns the current state of a path.
func look(path string) seen {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		// Other errors are reported when the file is opened.
		return seen{missing: errors.Is(err, fs.ErrNotExist)}
	}

	to, err := os.Readlink(path)
	return seen{link: true, to: to, err: err}
}

// LinkError reports a link that is not followed, because it lies below a folder of the boundary.
type LinkError struct {
	Path   string // path of the link
	Folder string // folder of the boundary that contains the link
}

func (e *LinkError) Error() string {
	return fmt.Sprintf("%s is a link, and lies in %s, where agents or strangers can make links: it is not followed; put a folder or a file in its place", e.Path, e.Folder)
}

// location is a path, split at the boundary.
type location struct {
	resolved string // the whole path, with links above the boundary resolved
	folder   string // folder of the boundary that contains the path, "" if there is none
	rest     string // path relative to folder
}

// locate resolves the links of a path down to the boundary, using look. Missing parts are kept.
func (b UntrustedDirs) locate(path string, look func(string) seen) (location, error) {
	if path == "" { // the system does not treat an empty path as the current folder
		return location{}, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}

	path, err := filepath.Abs(path)
	if err != nil {
		return location{}, err
	}

	at := root(path)
	todo, missing := elements(path), false // below a missing folder, everything is missing
	for links := 0; len(todo) > 0; {
		if b.has(at) {
			// Clean the rest lexically: links below the boundary are not followed, so ".." has no
			// other meaning.
			rest := filepath.Clean(filepath.Join(todo...))
			if rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator)) {
				return location{resolved: filepath.Join(at, rest), folder: at, rest: rest}, nil
			}
		}

		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			at, missing = filepath.Dir(at), false
			continue
		}

		next := filepath.Join(at, name)
		if missing {
			at = next
			continue
		}

		found := look(next)
		switch {
		case !found.link:
			at, missing = next, found.missing
			continue
		case found.err != nil:
			return location{}, found.err
		}
		if links++; links > maxLinks {
			return location{}, &fs.PathError{Op: "open", Path: path, Err: errors.New("it leads through too many links")}
		}
		if filepath.IsAbs(found.to) {
			at = root(found.to)
		}
		todo = append(elements(found.to), todo...)
	}

	return location{resolved: at}, nil
}

// has reports whether a path is a folder of the boundary.
func (b UntrustedDirs) has(path string) bool {
	return len(b.folders) > 0 && b.folders[fold(path)]
}

// fold returns a path in the form used for comparison. It ignores case on systems that usually do.
func fold(path string) string {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		return strings.ToLower(path)
	}
	return path
}

func root(path string) string { return filepath.VolumeName(path) + string(filepath.Separator) }

func elements(path string) []string {
	path = strings.TrimPrefix(path, filepath.VolumeName(path))
	return strings.FieldsFunc(path, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
}

// Resolve resolves the links of a path down to the boundary.
func (b UntrustedDirs) Resolve(path string) (string, error) {
	at, err := b.locate(path, look)
	return at.resolved, err
}

// Equal reports whether two boundaries are the same.
func (b UntrustedDirs) Equal(o UntrustedDirs) bool { return maps.Equal(b.folders, o.folders) }

// Holds returns the folder of the boundary that contains a path, or "" if there is none.
func (b UntrustedDirs) Holds(path string) (folder string) {
	at, err := b.locate(path, look)
	if err != nil {
		return ""
	}
	return at.folder
}

// Covers reports whether a path is a folder of the boundary or lies below one.
func (b UntrustedDirs) Covers(path string) bool {
	at, err := b.locate(path, look)
	return err == nil && (at.folder != "" || b.has(at.resolved))
}

// Within returns the part of a path below the boundary, or "" if there is none.
func (b UntrustedDirs) Within(path string) string {
	at, err := b.locate(path, look)
	if err != nil {
		return ""
	}
	return at.rest
}

// OpenRoot opens a folder. It returns a *LinkError if a link below the boundary is in the path. The
// caller must close the root.
func (b UntrustedDirs) OpenRoot(path string) (*os.Root, error) { return b.open(path, 0) }

// MakeRoot is like OpenRoot, but creates missing folders. Folders at and below the boundary get the
// given mode.
func (b UntrustedDirs) MakeRoot(path string, mode fs.FileMode) (*os.Root, error) {
	return b.open(path, mode)
}

// open opens a folder. If create is not 0, it creates missing folders with that mode.
func (b UntrustedDirs) open(path string, create fs.FileMode) (*os.Root, error) {
	at, err := b.locate(path, look)
	if err != nil {
		return nil, err
	}

	start := at.folder
	if start == "" {
		start = at.resolved
	}
	if create != 0 {
		if err := makeFolder(start, create); err != nil {
			return nil, err
		}
	}

	folder, err := os.OpenRoot(start)
	if info, bad := os.Stat(start); err != nil && bad == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: start, Err: syscall.ENOTDIR} // the usual error for a file
	}
	if err != nil {
		return nil, err
	}

	if at.rest == "" || at.rest == "." {
		return folder, nil
	}
	defer folder.Close()
	return descend(folder, at.rest, create)
}

// OpenBelow opens a folder below an open one, which stays open. It returns a *LinkError if a link
// is in the path. The caller must close the root.
func OpenBelow(in *os.Root, path string) (*os.Root, error) { return descend(in, path, 0) }

// MakeBelow is like OpenBelow, but creates missing folders with a mode that the umask does not
// change.
func MakeBelow(in *os.Root, path string, mode fs.FileMode) (*os.Root, error) {
	return descend(in, path, mode)
}

// descend opens a folder below another one. If create is not 0, it creates missing folders.
func descend(in *os.Root, path string, create fs.FileMode) (folder *os.Root, err error) {
	for _, name := range elements(path) {
		if name == "." {
			continue
		}

		above := folder
		if above == nil {
			above = in
		}
		below, err := enter(above, name, in.Name(), create)
		if folder != nil {
			folder.Close()
		}
		if err != nil {
			return nil, err
		}
		folder = below
	}

	if folder == nil {
		return in.OpenRoot(".")
	}
	return folder, nil
}

// makeFolder creates a folder with a mode, and its missing parents.
func makeFolder(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}

	err := os.Mkdir(path, mode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil // opening it reports if it is not a folder
	case err != nil:
		return err
	}
	return os.Chmod(path, mode) // undo the umask
}

// enter opens a folder in another one. It returns a *LinkError if the folder is a link. top is the
// folder of the boundary for the error.
func enter(in *os.Root, name, top string, create fs.FileMode) (*os.Root, error) {
	made := false
	info, err := in.Lstat(name)
	if create != 0 && errors.Is(err, fs.ErrNotExist) {
		// Another process may create the name at the same time, possibly as a link.
		failed := in.Mkdir(name, create)
		if failed != nil && !errors.Is(failed, fs.ErrExist) {
			return nil, failed
		}
		made = failed == nil
		info, err = in.Lstat(name)
	}
	if err != nil {
		return nil, err
	}

	path := filepath.Join(in.Name(), name)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, &LinkError{path, top}
	case !info.IsDir():
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}

	below, err := in.OpenRoot(name)
	if err != nil {
		return nil, err
	}

	// os.Root follows links that stay within it. A link may have replaced the folder since Lstat.
	opened, err := below.Stat(".")
	if err == nil && !os.SameFile(info, opened) {
		err = &LinkError{path, top}
	}
	if err == nil && made {
		err = below.Chmod(".", create) // undo the umask
	}
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}

	return below, nil
}

// Stat returns information about a file or folder. It returns a *LinkError for a link below the
// boundary.
func (b UntrustedDirs) Stat(path string) (fs.FileInfo, error) {
	folder, _, info, err := b.find(path)
	if err != nil {
		return nil, err
	}
	return info, folder.Close()
}

// find opens the parent folder of a path and returns information about the path's last element. The
// caller must close the folder.
func (b UntrustedDirs) find(path string) (folder *os.Root, name string, info fs.FileInfo, err error) {
	at, err := b.locate(path, look)
	if err != nil {
		return nil, "", nil, err
	}

	if folder, err = b.OpenRoot(filepath.Dir(at.resolved)); err != nil {
		return nil, "", nil, err
	}

	// The base of a root such as / is not a name in it.
	if name = filepath.Base(at.resolved); at.resolved == filepath.Dir(at.resolved) {
		name = "."
	}

	if info, err = folder.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		err = &LinkError{at.resolved, at.folder}
	}
	if err != nil {
		return nil, "", nil, errors.Join(err, folder.Close())
	}

	return folder, name, info, nil
}

// ReadDir lists a folder. It returns a *LinkError if a link below the boundary is in the path.
func (b UntrustedDirs) ReadDir(path string) ([]fs.DirEntry, error) {
	folder, err := b.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer folder.Close()

	return fs.ReadDir(folder.FS(), ".")
}

// Open opens a regular file for reading. It returns a *LinkError for a link below the boundary.
func (b UntrustedDirs) Open(path string) (*os.File, error) {
	folder, name, info, err := b.find(path)
	if err != nil {
		return nil, err
	}
	defer folder.Close()

	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is not a regular file")}
	}

	file, err := folder.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}

	opened, err := file.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("it was replaced while it was opened")}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}

	return file, nil
}
