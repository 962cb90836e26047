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
	maxDepth = 500 // of folders that are searched; the command of an agent that nests deeper fails
	maxTries = 20  // looks at something that other commands keep replacing
)

// gitGuard keeps a command from leaving something that git would run for whoever looks into the
// folder later: a .git of any kind, or a folder that git takes for a repository without that name.
// What exists before, the command cannot change. Neither mounts nor Landlock forbid a name at every
// depth, so the folders are searched when the command has ended, and new repositories get names
// that git ignores.
type gitGuard struct {
	// roots are the folders, none in another. They stay open while the command runs, because somebody
	// else may replace one by a link.
	roots  []*os.Root
	owners map[string]fs.FileInfo // repositories that were there before, by path; nil if only the path is known
	before inventory              // the files that were there; nil if unknown
}

// openGuard opens the places that are folders, through no link below the boundary. The caller must
// close the guard.
func openGuard(b nofollow.Boundary, places ...string) (*gitGuard, error) {
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

// newGitGuard records what is there before a command. The caller must close the guard.
func newGitGuard(b nofollow.Boundary, places []string) (*gitGuard, error) {
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
		return "", nil // protected as a whole: there is no need to look into it
	}})
	if err != nil {
		g.close()
		return nil, fmt.Errorf("the folders that a command may write cannot be searched for git repositories: %w", err)
	}

	return g, nil
}

// Disarmed is a repository, and how it was taken out of use.
type Disarmed struct {
	Path    string   `json:"path"`    // absolute, as it was before
	Renamed []Rename `json:"renamed"` // in this order; undone in the other
}

// Rename is one new name, by absolute paths.
type Rename struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Undo returns the shell command that brings the repository back.
func (d Disarmed) Undo() string { return d.undoFrom("") }

// undoFrom is Undo with paths relative to a folder.
func (d Disarmed) undoFrom(folder string) string {
	var moves []string
	for _, r := range slices.Backward(d.Renamed) {
		moves = append(moves, "mv -n -- "+quoted(fspath.Shorten(folder, r.To))+" "+quoted(fspath.Shorten(folder, r.From)))
	}
	return strings.Join(moves, " && ")
}

// disarm renames repositories that a command made. A .git with a repository in it gets two new
// names: otherwise it would still be a bare repository for git inside of it.
func (g *gitGuard) disarm() (disarmed []Disarmed, err error) {
	err = g.walk(gitWalk{opening: true, found: func(w *gitWalk, rel string, entries []fs.DirEntry) (string, error) {
		path := filepath.Join(w.root.Name(), rel)
		if before, known := g.owners[path]; known {
			if info, err := w.root.Lstat(rel); err == nil && (before == nil || os.SameFile(before, info)) {
				return "", nil
			}
		}

		if !renamedTo(disarmed, path) { // else it is the .git that was found just before
			disarmed = append(disarmed, Disarmed{Path: path})
		}
		one := &disarmed[len(disarmed)-1]
		if entries == nil { // it is called .git
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

// Disarm takes all repositories in folders out of use, whoever made them, and returns what it renamed.
func Disarm(folders ...string) ([]Disarmed, error) {
	g, err := openGuard(nofollow.Boundary{}, folders...)
	if err != nil {
		return nil, err
	}
	defer g.close()
	return g.disarm()
}

// renamedTo reports whether the last of them was renamed to this path.
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

// gitWalk walks a folder and all below it. It follows no links.
type gitWalk struct {
	root    *os.Root
	misled  bool // a link had taken the place of a folder when something in it was to be renamed
	opening bool // folders that a program closed to itself are opened
	shallow bool // folders deeper than maxDepth are left out, instead of being an error
	// file is called with each entry that is not a folder. Optional.
	file func(path string, info fs.FileInfo)
	// found is called with an entry called .git, or with a folder that is a repository by its entries.
	// It returns the path at which the walk goes on, or "".
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

// all walks a root, again if another command led it astray by a link.
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

// ignore drops the error of an entry that is gone. Before a command, it also drops that of an entry
// that cannot be looked at, because the command cannot reach it either.
func (w *gitWalk) ignore(err error) error {
	if errors.Is(err, fs.ErrPermission) && !w.opening {
		return nil
	}
	return ignoreGone(err)
}

// entries lists a folder, or nothing if it is gone. After a command, which may have closed a folder
// that it made, unreadable folders are opened.
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

	// In a folder that may be listed but not searched, everything would seem to be gone.
	if info, err := dir.Stat(); err == nil && w.opening && info.Mode().Perm()&0o100 == 0 {
		_ = dir.Chmod(info.Mode().Perm() | 0o700) // one of another user stays as it is, which no command could change
	}

	entries, err := dir.ReadDir(-1)
	return entries, w.ignore(err)
}

// open opens a folder; nil if it is gone, or left as it is.
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

		// Another command may have replaced it, which the search after that one finds, or put it back.
		if info, again := w.root.Lstat(rel); again != nil || !info.IsDir() {
			return nil, nil //nolint:nilerr // there is no folder any more
		}
	}
	return nil, err
}

// rename gives an entry a free name that says what it was. It renames nothing in a folder that is a
// link now, because the owner's files may lie there: next is "" then, and if the entry is gone.
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
		return err != nil // any other reason than that it is free shows in the renaming
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

// disarmedWarnings describe the disarmed repositories, with paths relative to the workdir.
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
