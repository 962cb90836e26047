package skills

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/gitlayout"
)

// File is a file, a folder or a link in the folder of a skill.
type File struct {
	Path    string      // below the folder, with slashes; "." for the folder itself
	Mode    fs.FileMode // of the entry itself: links are not followed
	Bytes   int64
	Link    string // target of a link
	Refused string // why no skill may contain it; "" if it may
	root    *os.Root
}

// Open opens a file for reading.
func (f File) Open() (*os.File, error) { return f.root.Open(filepath.FromSlash(f.Path)) }

// Walk returns all files, folders and links below a folder, each folder before its entries, which are sorted by name. It
// is the only walk over the files of a skill: what is staged, shown, hashed, trusted, pinned, checked and compiled
// is the same. It leaves nothing out, but does not enter an entry that is refused. A caller that
// installs or trusts must fail if an entry is refused.
func Walk(root *os.Root) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) { walkFolder(root, ".", yield) }
}

// walkFolder yields the entries of a folder and all below it. It returns false if the caller has stopped.
func walkFolder(root *os.Root, dir string, yield func(File, error) bool) bool {
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) && dir != "." {
		return true // deleted during the walk
	}
	if err != nil {
		yield(File{}, err)
		return false
	}

	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if gitlayout.IsLayout(gitlayout.Has(names)) {
		return yield(File{Path: dir, Mode: fs.ModeDir, Refused: "git takes the folder for a repository, and runs what its configuration names", root: root}, nil)
	}

	for _, e := range entries {
		f := File{Path: path.Join(dir, e.Name()), Mode: e.Type(), Refused: RefusedName(e.Name()), root: root}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			yield(f, err)
			return false
		}

		f.Mode, f.Bytes = info.Mode(), info.Size()
		switch kind := f.Mode.Type(); {
		case f.Refused != "":
		case kind == fs.ModeSymlink:
			if f.Link, err = root.Readlink(filepath.FromSlash(f.Path)); err != nil {
				yield(f, err)
				return false
			}
			// The root follows no link out of itself. Nothing would show a change of a file elsewhere.
			if _, err := root.Stat(filepath.FromSlash(f.Path)); err != nil {
				f.Refused = "it is a link that leads out of the skill, or nowhere"
			}
		case kind != 0 && kind != fs.ModeDir:
			f.Refused = "it is neither a file nor a folder"
		}
		// A layout is refused as the folder that it is, by the call for it.
		if !yield(f, nil) || f.Refused == "" && f.Mode.IsDir() && !walkFolder(root, f.Path, yield) {
			return false
		}
	}
	return true
}

// repositories are names of entries by which other tools than git find a repository. All of them run programs that
// the repository names, when they are asked for the state of a folder. Names are as gitlayout.Fold returns them.
var repositories = map[string]string{
	".hg": "Mercurial", ".svn": "Subversion", ".bzr": "Bazaar", ".jj": "Jujutsu", ".sl": "Sapling",
	"_darcs": "Darcs", ".pijul": "Pijul", ".fslckout": "Fossil", "_fossil_": "Fossil",
}

// RefusedName returns why no skill may contain an entry of this name, or "" if it may. A tool that asks its user
// before it runs anything of a folder (direnv, editors) has no name here: its files are shown and hashed.
func RefusedName(name string) string {
	if gitlayout.IsName(name) {
		return "git takes it for a repository, and runs what its configuration names"
	}
	folded := gitlayout.Fold(name)
	for known, tool := range repositories {
		// The other is the short name that Windows gives it.
		if short := strings.TrimPrefix(known, "."); folded == known || folded == short[:min(len(short), 6)]+"~1" {
			return tool + " takes it for a repository, and runs what its configuration names"
		}
	}
	return ""
}

// Files lists the files and links of a skill beside its SKILL.md (AGS-09): at most max paths relative to it,
// with slashes, and whether there are more. Paths are sorted, those in node_modules last. It reads no file.
func (s *Skill) Files(max int) (files []string, more bool, err error) {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return nil, false, fmt.Errorf("the files of the skill %s cannot be listed: %w", s.Name, err)
	}
	defer root.Close()

	var modules []string
	for f, err := range Walk(root) {
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("the files of the skill %s cannot be listed: %w", s.Name, err)
		case f.Refused != "" || f.Mode.IsDir() || f.Path == filepath.Base(s.File):
		case slices.Contains(strings.Split(f.Path, "/"), "node_modules"):
			modules = append(modules, f.Path)
		default:
			files = append(files, f.Path)
		}
	}

	files = append(files, modules...)
	return files[:min(len(files), max)], len(files) > max, nil
}
