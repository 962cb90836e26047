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

// File is a file, folder or link inside a skill's folder.
type File struct {
	Path    string      // slash-separated, relative to the folder; "." for the folder itself
	Mode    fs.FileMode // mode of the entry itself; links are not followed
	Bytes   int64
	Link    string // target, if the entry is a link
	Refused string // why no skill may contain the entry; "" if it is allowed
	root    *os.Root
}

// Open opens the file for reading. The caller must close it.
func (f File) Open() (*os.File, error) { return f.root.Open(filepath.FromSlash(f.Path)) }

// Walk returns all files, folders and links below root. A folder comes before its entries, which
// are sorted by name. Staging, display, hashing, trust, checks and compilation all use Walk, so
// that they see the same files. Walk skips no entry, but it does not descend into a refused entry.
// A caller that installs or trusts a skill must fail if an entry is refused.
func Walk(root *os.Root) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) { walkFolder(root, ".", yield) }
}

// walkFolder yields everything below a folder. It returns false if the iteration must stop.
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
			// os.Root does not follow links out of the root. A change of a file outside would go
			// unnoticed.
			if _, err := root.Stat(filepath.FromSlash(f.Path)); err != nil {
				f.Refused = "it is a link that leads out of the skill, or nowhere"
			}
		case kind != 0 && kind != fs.ModeDir:
			f.Refused = "it is neither a file nor a folder"
		}
		// The recursive call refuses a folder with the layout of a Git repository.
		if !yield(f, nil) || f.Refused == "" && f.Mode.IsDir() && !walkFolder(root, f.Path, yield) {
			return false
		}
	}
	return true
}

// repositories maps names of entries to the version control systems that recognize a repository by
// them. All of these systems run programs that the repository configures, even to show the state of
// a folder. Names are in the form that gitlayout.Fold returns.
var repositories = map[string]string{
	".hg": "Mercurial", ".svn": "Subversion", ".bzr": "Bazaar", ".jj": "Jujutsu", ".sl": "Sapling",
	"_darcs": "Darcs", ".pijul": "Pijul", ".fslckout": "Fossil", "_fossil_": "Fossil",
}

// RefusedName returns why no skill may contain an entry of this name, or "" if it is allowed. Tools
// that ask the user before they run anything, like direnv and editors, are not covered. Their files
// are shown and hashed like others.
func RefusedName(name string) string {
	if gitlayout.IsName(name) {
		return "git takes it for a repository, and runs what its configuration names"
	}
	folded := gitlayout.Fold(name)
	for known, tool := range repositories {
		// Windows also accepts a short name with ~1.
		if short := strings.TrimPrefix(known, "."); folded == known || folded == short[:min(len(short), 6)]+"~1" {
			return tool + " takes it for a repository, and runs what its configuration names"
		}
	}
	return ""
}

// Files returns at most max paths of files and links in the skill's folder, and whether there are
// more. It excludes SKILL.md. Paths are slash-separated, relative and sorted, with paths in
// node_modules last. Files does not read file contents.
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
