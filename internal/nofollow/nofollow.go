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

// maxLinks bounds the links of its owner's that a path may lead through, as systems do.
const maxLinks = 40

// Boundary is where the owner's own part of the file system ends: folders below which somebody else
// makes names. The zero value has none, and every link is the owner's.
type Boundary struct {
	folders map[string]bool // resolved, clean, and folded where case does not count
}

// NewBoundary returns the boundary of absolute folders. Missing folders count by name.
func NewBoundary(folders ...string) Boundary { return NewGlance().Boundary(folders...) }

// Glance follows many paths at about one time: it looks at each name on their way once.
type Glance struct{ names map[string]seen }

// seen is what stands at a path: a link, with where it leads to, something else, or nothing.
type seen struct {
	link, missing bool
	to            string
	err           error // of reading a link
}

// NewGlance returns one that has seen nothing yet.
func NewGlance() *Glance { return &Glance{names: map[string]seen{}} }

// Boundary is NewBoundary.
func (g *Glance) Boundary(folders ...string) Boundary {
	type folder struct {
		path          string
		linked, depth int
	}
	all := make([]folder, len(folders))
	for i, path := range folders {
		all[i] = folder{path, 1, len(elements(path))}
		if at, err := (Boundary{}).locate(path, g.look); err == nil && at.resolved == filepath.Clean(path) {
			all[i].linked = 0
		}
	}

	// Outer folders first: one within another does not end the owner's part, for that one does, and
	// whoever writes there may have made it a link. Those that links lead to come last, for some of
	// these links may lie in the others.
	slices.SortStableFunc(all, func(x, y folder) int { return cmp.Or(x.linked-y.linked, x.depth-y.depth) })

	b := Boundary{map[string]bool{}}
	for _, f := range all {
		if at, err := b.locate(f.path, g.look); err == nil && at.folder == "" {
			b.folders[fold(at.resolved)] = true
		}
	}
	return b
}

// Resolve is that of the zero Boundary.
func (g *Glance) Resolve(path string) (string, error) {
	at, err := (Boundary{}).locate(path, g.look)
	return at.resolved, err
}

func (g *Glance) look(path string) seen {
	at, ok := g.names[path]
	if !ok {
		at = look(path)
		g.names[path] = at
	}
	return at
}

// look says what stands at a path now.
func look(path string) seen {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		// What may not be seen is reported by whoever opens it.
		return seen{missing: errors.Is(err, fs.ErrNotExist)}
	}

	to, err := os.Readlink(path)
	return seen{link: true, to: to, err: err}
}

// LinkError is a link that is not followed: it lies where somebody else makes names.
type LinkError struct {
	Path   string // of the link
	Folder string // of the boundary that it lies in
}

func (e *LinkError) Error() string {
	return fmt.Sprintf("%s is a link, and lies in %s, where agents or strangers can make links: it is not followed; put a folder or a file in its place", e.Path, e.Folder)
}

// location is a path cut at the boundary.
type location struct {
	resolved string // the whole path, with the owner's links resolved
	folder   string // of the boundary that it lies in, "" when all of it is the owner's
	rest     string // below folder
}

// locate resolves the links of a path down to the boundary, with look, and keeps missing parts.
func (b Boundary) locate(path string, look func(string) seen) (location, error) {
	if path == "" { // which is not the current folder, to the system
		return location{}, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}

	path, err := filepath.Abs(path)
	if err != nil {
		return location{}, err
	}

	at := root(path)
	todo, missing := elements(path), false // what lies below what is missing is so, too
	for links := 0; len(todo) > 0; {
		if b.has(at) {
			// Lexically from here on: no link below is followed, so ".." cannot mean anything else.
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

// has reports whether a path is one of the folders.
func (b Boundary) has(path string) bool {
	return len(b.folders) > 0 && b.folders[fold(path)]
}

// fold is a path as it is compared: file systems of some systems usually do not tell case apart.
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

// Resolve returns a path with its links resolved down to the boundary.
func (b Boundary) Resolve(path string) (string, error) {
	at, err := b.locate(path, look)
	return at.resolved, err
}

// Equal reports whether two boundaries are the same.
func (b Boundary) Equal(o Boundary) bool { return maps.Equal(b.folders, o.folders) }

// Holds returns the folder of the boundary that a path lies in, "" when it lies in none.
func (b Boundary) Holds(path string) (folder string) {
	at, err := b.locate(path, look)
	if err != nil {
		return ""
	}
	return at.folder
}

// Covers reports whether a path is one of the folders of the boundary, or lies in one.
func (b Boundary) Covers(path string) bool {
	at, err := b.locate(path, look)
	return err == nil && (at.folder != "" || b.has(at.resolved))
}

// Within is the part of a path below the boundary, "" where there is none.
func (b Boundary) Within(path string) string {
	at, err := b.locate(path, look)
	if err != nil {
		return ""
	}
	return at.rest
}

// OpenRoot opens a folder. Below the boundary a link in its path is a *LinkError.
func (b Boundary) OpenRoot(path string) (*os.Root, error) { return b.open(path, 0) }

// MakeRoot is OpenRoot that makes missing folders. Those at and below the boundary get the mode.
func (b Boundary) MakeRoot(path string, mode fs.FileMode) (*os.Root, error) {
	return b.open(path, mode)
}

// open makes what is missing with a mode that is not 0.
func (b Boundary) open(path string, create fs.FileMode) (*os.Root, error) {
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
		err = &fs.PathError{Op: "open", Path: start, Err: syscall.ENOTDIR} // as everybody else says it
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

// OpenBelow opens a folder below an open one, which stays open. It returns *LinkError for a link.
func OpenBelow(in *os.Root, path string) (*os.Root, error) { return descend(in, path, 0) }

// MakeBelow is OpenBelow that makes missing folders with a mode, whatever the umask.
func MakeBelow(in *os.Root, path string, mode fs.FileMode) (*os.Root, error) {
	return descend(in, path, mode)
}

// descend opens a folder below another one. If create is not 0, it makes missing folders.
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

// makeFolder makes a folder of the owner's with a mode, and what is missing above it.
func makeFolder(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}

	err := os.Mkdir(path, mode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil // what it is shows when it is opened
	case err != nil:
		return err
	}
	return os.Chmod(path, mode) // the umask may have taken some of it
}

// enter opens a folder in another one, unless it is a link. Others make names below top.
func enter(in *os.Root, name, top string, create fs.FileMode) (*os.Root, error) {
	made := false
	info, err := in.Lstat(name)
	if create != 0 && errors.Is(err, fs.ErrNotExist) {
		// Somebody else may make it at the same time, and it may be a link then.
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

	// os.Root follows links that stay within it, and one may have taken the place of the folder since.
	opened, err := below.Stat(".")
	if err == nil && !os.SameFile(info, opened) {
		err = &LinkError{path, top}
	}
	if err == nil && made {
		err = below.Chmod(".", create) // the umask may have taken some of it
	}
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}

	return below, nil
}

// Stat describes a file or folder. It returns *LinkError for a link below the boundary.
func (b Boundary) Stat(path string) (fs.FileInfo, error) {
	folder, _, info, err := b.find(path)
	if err != nil {
		return nil, err
	}
	return info, folder.Close()
}

// find opens the folder of a path, and says what is there by that name.
func (b Boundary) find(path string) (folder *os.Root, name string, info fs.FileInfo, err error) {
	at, err := b.locate(path, look)
	if err != nil {
		return nil, "", nil, err
	}

	if folder, err = b.OpenRoot(filepath.Dir(at.resolved)); err != nil {
		return nil, "", nil, err
	}

	// The base of a root such as / is no name in it.
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

// ReadDir lists a folder. Below the boundary a link in its path is a *LinkError.
func (b Boundary) ReadDir(path string) ([]fs.DirEntry, error) {
	folder, err := b.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer folder.Close()

	return fs.ReadDir(folder.FS(), ".")
}

// Open opens a regular file for reading. It returns *LinkError for a link below the boundary.
func (b Boundary) Open(path string) (*os.File, error) {
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
