package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rouse/internal/fspath"
	"rouse/internal/gitlayout"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

const (
	maxDepth = 500 // of searched folders; a command that nests deeper fails
	maxTries = 20  // attempts on a folder that other commands keep replacing
)

// gitGuard prevents a command from leaving a repository with programs that git would run for a
// later user of the folder. That is a .git of any kind, or a folder that git recognizes as a
// repository without that name. The command cannot change repositories that existed before. Neither
// mounts nor Landlock can forbid a name at every depth. Therefore the folders are searched after
// the command, and new repositories are renamed so that git ignores them.
type gitGuard struct {
	// roots are the folders. No folder contains another. They stay open while the command runs,
	// because another process may replace one with a link.
	roots  []*os.Root
	owners map[string]fs.FileInfo // existing repositories by path; nil value if only the path is known
	before inventory              // existing files; nil if unknown
}

// openGuard opens the places that are folders. It does not follow links below the boundary. The
// caller must close the guard.
func openGuard(b nofollow.UntrustedDirs, places ...string) (*gitGuard, error) {
	g := &gitGuard{owners: map[string]fs.FileInfo{}}
	for _, place := range slices.Sorted(slices.Values(places)) {
		if slices.ContainsFunc(g.roots, func(root *os.Root) bool { return fspath.Within(place, root.Name()) }) {
			continue
		}

		root, err := b.OpenRoot(place)
		switch {
		case err == nil:
			g.roots = append(g.roots, root)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			g.close()
			return nil, err
		}
	}

	return g, nil
}

func (g *gitGuard) close() {
	for _, root := range g.roots {
		root.Close()
	}
}

// newGitGuard records the existing files and repositories before a command. The caller must close
// the guard.
func newGitGuard(b nofollow.UntrustedDirs, places []string) (*gitGuard, error) {
	g, err := openGuard(b, places...)
	if err != nil {
		return nil, fmt.Errorf("the folders that a command may write cannot be opened: %w", err)
	}

	g.before = inventory{}
	err = g.walk(gitWalk{file: g.before.add, found: func(w *gitWalk, rel string, _ []fs.DirEntry) (string, error) {
		info, err := w.root.Lstat(rel)
		if err != nil {
			return "", w.ignore(err)
		}
		g.owners[filepath.Join(w.root.Name(), rel)] = info
		return "", nil // protected as a whole, so there is no need to search it
	}})
	if err != nil {
		g.close()
		return nil, fmt.Errorf("the folders that a command may write cannot be searched for git repositories: %w", err)
	}

	return g, nil
}

// Disarmed describes a repository that was taken out of use.
type Disarmed struct {
	Path    string   `json:"path"`    // original absolute path
	Renamed []Rename `json:"renamed"` // in order; undo in reverse order
}

// Rename is one renaming, with absolute paths.
type Rename struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Undo returns the shell command that restores the repository.
func (d Disarmed) Undo() string { return d.undoFrom("") }

// undoFrom is like Undo, with paths relative to a folder.
func (d Disarmed) undoFrom(folder string) string {
	var moves []string
	for _, r := range slices.Backward(d.Renamed) {
		moves = append(moves, "mv -n -- "+quoted(fspath.Shorten(folder, r.To))+" "+quoted(fspath.Shorten(folder, r.From)))
	}
	return strings.Join(moves, " && ")
}

// disarm renames the repositories that a command made. A .git that contains a repository gets two
// new names. With only one, git would still see a bare repository inside it.
func (g *gitGuard) disarm() (disarmed []Disarmed, err error) {
	err = g.walk(gitWalk{opening: true, found: func(w *gitWalk, rel string, entries []fs.DirEntry) (string, error) {
		path := filepath.Join(w.root.Name(), rel)
		if before, known := g.owners[path]; known {
			if info, err := w.root.Lstat(rel); err == nil && (before == nil || os.SameFile(before, info)) {
				return "", nil
			}
		}

		if !renamedTo(disarmed, path) { // otherwise it is the .git renamed just before
			disarmed = append(disarmed, Disarmed{Path: path})
		}
		one := &disarmed[len(disarmed)-1]
		if entries == nil { // its name is .git
			return one.rename(w, rel, "git")
		}

		for _, e := range entries {
			if strings.EqualFold(e.Name(), "HEAD") {
				if _, err := one.rename(w, filepath.Join(rel, e.Name()), "HEAD"); err != nil {
					return "", err
				}
			}
		}
		return rel, nil
	}})

	disarmed = slices.DeleteFunc(disarmed, func(d Disarmed) bool { return len(d.Renamed) == 0 })
	if err != nil {
		return disarmed, fmt.Errorf("the folders that a command could write cannot be searched for git repositories that it made: %w; "+
			"look there before you use git in them", err)
	}

	return disarmed, nil
}

// Disarm takes all repositories in folders out of use and returns the renamed ones.
func Disarm(folders ...string) ([]Disarmed, error) {
	g, err := openGuard(nofollow.UntrustedDirs{}, folders...)
	if err != nil {
		return nil, err
	}
	defer g.close()
	return g.disarm()
}

// renamedTo reports whether the last of the repositories was renamed to path.
func renamedTo(disarmed []Disarmed, path string) bool {
	if len(disarmed) == 0 {
		return false
	}
	renamed := disarmed[len(disarmed)-1].Renamed
	return len(renamed) > 0 && renamed[len(renamed)-1].To == path
}

func (d *Disarmed) rename(w *gitWalk, rel, what string) (next string, err error) {
	next, err = w.rename(rel, what)
	if err == nil && next != "" {
		d.Renamed = append(d.Renamed, Rename{filepath.Join(w.root.Name(), rel), filepath.Join(w.root.Name(), next)})
	}
	return next, err
}

// gitWalk walks a folder and its subfolders. It does not follow links.
type gitWalk struct {
	root    *os.Root
	misled  bool // a link replaced a folder during a rename
	opening bool // open folders that a program has closed to itself
	shallow bool // skip folders deeper than maxDepth instead of failing
	// file is called with each entry that is not a folder. Optional.
	file func(path string, info fs.FileInfo)
	// found is called with an entry named .git, or with a folder that has the layout of a
	// repository. It returns the path at which the walk continues, or "".
	found func(w *gitWalk, rel string, entries []fs.DirEntry) (next string, err error)
}

func (g *gitGuard) walk(w gitWalk) error {
	for _, root := range g.roots {
		w.root = root
		if err := w.all(); err != nil {
			return err
		}
	}
	return nil
}

// all walks a root. It starts again if another command replaced a folder with a link.
func (w *gitWalk) all() error {
	for range maxTries {
		w.misled = false
		if err := w.folder("."); err != nil || !w.misled {
			return err
		}
	}
	return fmt.Errorf("another command keeps putting links in the place of folders of %s", w.root.Name())
}

func (w *gitWalk) folder(rel string) error {
	entries, err := w.entries(rel)
	if err != nil || len(entries) == 0 {
		return err
	}

	if err := w.files(rel, entries); err != nil {
		return err
	}

	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.EqualFold(e.Name(), name) })
	}
	if gitlayout.IsLayout(has) {
		if next, err := w.found(w, rel, entries); next == "" || err != nil {
			return err
		}
	}

	for _, e := range entries {
		next, named := filepath.Join(rel, e.Name()), gitlayout.IsName(e.Name())
		if named {
			if next, err = w.found(w, next, nil); err != nil {
				return err
			}
		}
		if next == "" || !e.IsDir() {
			continue
		}
		if err := w.folder(next); err != nil {
			return err
		}
	}

	return nil
}

// files calls file with the entries of a folder that are not folders.
func (w *gitWalk) files(rel string, entries []fs.DirEntry) error {
	if w.file == nil {
		return nil
	}

	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		info, err := e.Info()
		if err == nil {
			w.file(filepath.Join(w.root.Name(), rel, e.Name()), info)
		} else if err = w.ignore(err); err != nil {
			return err
		}
	}
	return nil
}

// ignore drops the error of an entry that no longer exists. Before a command, it also drops
// permission errors, because the command cannot reach the entry either.
func (w *gitWalk) ignore(err error) error {
	if errors.Is(err, fs.ErrPermission) && !w.opening {
		return nil
	}
	return ignoreGone(err)
}

// entries lists a folder. It returns nil if the folder no longer exists. After a command, it makes
// unreadable folders readable, because the command may have closed them.
func (w *gitWalk) entries(rel string) ([]fs.DirEntry, error) {
	if strings.Count(rel, string(filepath.Separator)) > maxDepth {
		if w.shallow {
			return nil, nil
		}
		return nil, fmt.Errorf("%s… is nested deeper than %d folders; remove it", text.Head(rel, 80), maxDepth)
	}

	dir, err := w.open(rel)
	if dir == nil {
		return nil, err
	}
	defer dir.Close()

	// In a folder that can be listed but not searched, all entries would seem to be missing.
	if info, err := dir.Stat(); err == nil && w.opening && info.Mode().Perm()&0o100 == 0 {
		_ = dir.Chmod(info.Mode().Perm() | 0o700) // fails for a folder of another user, which a command cannot close
	}

	entries, err := dir.ReadDir(-1)
	return entries, w.ignore(err)
}

// open opens a folder. It returns nil if the folder no longer exists or must be left unchanged.
func (w *gitWalk) open(rel string) (dir *os.File, err error) {
	for range maxTries {
		dir, err = w.root.Open(rel)
		if errors.Is(err, fs.ErrPermission) && w.opening && w.root.Chmod(rel, 0o700) == nil {
			dir, err = w.root.Open(rel)
		}

		switch {
		case err == nil:
			return dir, nil
		case errors.Is(err, fs.ErrPermission) && !w.opening:
			return nil, nil
		}

		// Another command may have replaced the folder. The search after that command handles it.
		if info, again := w.root.Lstat(rel); again != nil || !info.IsDir() {
			return nil, nil //nolint:nilerr // there is no folder any more
		}
	}
	return nil, err
}

// rename renames an entry to a free name that indicates what it was. It does not rename in a folder
// that has become a link, because the owner's files may lie there. next is "" in that case, and if
// the entry no longer exists.
func (w *gitWalk) rename(rel, what string) (next string, err error) {
	folder, name := filepath.Split(rel)
	in, err := nofollow.OpenBelow(w.root, folder)
	if _, ok := errors.AsType[*nofollow.LinkError](err); ok {
		w.misled = true
		return "", nil
	}
	if err != nil {
		return "", ignoreGone(err)
	}
	defer in.Close()

	as := gitlayout.Disarmed(what, func(name string) bool {
		_, err := in.Lstat(name)
		return err != nil // other errors appear when renaming
	})
	err = in.Rename(name, as)
	if errors.Is(err, fs.ErrPermission) && in.Chmod(".", 0o700) == nil {
		err = in.Rename(name, as)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // another command was faster
	}
	return folder + as, err
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// disarmedWarnings describes the disarmed repositories, with paths relative to workdir.
func disarmedWarnings(workdir string, disarmed []Disarmed) (out []string) {
	const most = 20 // a program may have made thousands
	for i, d := range disarmed {
		if i == most {
			return append(out, fmt.Sprintf("%d more repositories were taken out of use", len(disarmed)-most))
		}
		out = append(out, fmt.Sprintf("%s is a git repository that this command made (git init, git clone and the like); it was taken out of use by renaming, and its files are there: "+
			"git runs programs that the configuration of a repository names. To clone, branch and commit in a run, write in the job: checkout: {repo: FOLDER}. If you trust this repository, bring it back with: %s",
			text.Visible(fspath.Shorten(workdir, d.Path)), d.undoFrom(workdir)))
	}
	return out
}
