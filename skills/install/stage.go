package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"rouse/internal/fspath"
	"rouse/internal/text"
	"rouse/skills"
)

// stagingDir is the directory for staging below a root. It is on the same file system, so skills
// can be moved by rename. Discovery skips it because its name begins with a dot.
const stagingDir = ".staging"

// Staged is a skill that was fetched but not installed.
type Staged struct {
	Pinned   // lock file entry, without InstalledAt
	Skill    *skills.Skill
	Problems []skills.Problem // only warnings
	Files    []File           // sorted by path

	tempDir string // deleted by Close
}

// Close deletes the staging directory. It does not affect the skill once it is installed.
func (s *Staged) Close() error { return os.RemoveAll(s.tempDir) }

// Changes returns the differences between the terms of the staged skill and of the skill it
// replaces in root. replaces reports whether there is such a skill.
func (s *Staged) Changes(root string) (changes []skills.Change, replaces bool) {
	old, _ := skills.Load(filepath.Join(root, s.Skill.Name))
	if old == nil {
		return nil, false
	}
	return skills.Compare(old.Manifest, s.Skill.Manifest), true
}

// makeStaging creates a directory for one installation below root. It does not use the system's
// temporary directory, because an agent may have write access there.
func makeStaging(root string) (string, error) {
	if err := os.MkdirAll(filepath.Join(root, stagingDir), 0o755); err != nil {
		return "", fmt.Errorf("skills cannot be kept in %s: %w", root, err)
	}
	return os.MkdirTemp(filepath.Join(root, stagingDir), "")
}

// stage writes entries to a new directory below root and loads the skill in it.
func stage(ctx context.Context, root string, all entries, from Staged) (_ *Staged, err error) {
	dir, err := makeStaging(root)
	if err != nil {
		return nil, err
	}

	from.tempDir = dir
	defer func() {
		if err != nil {
			err = errors.Join(err, from.Close())
		}
	}()

	dir = filepath.Join(dir, sourceName(from.Source))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}

	into, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer into.Close()

	w := writer{root: into, subpath: from.Path, seen: map[string]string{}}
	for e, err := range all {
		if err == nil {
			err = errors.Join(ctx.Err(), w.add(e))
		}
		if err != nil {
			return nil, err
		}
	}

	if w.inPath == 0 && from.Path != "" {
		return nil, fmt.Errorf("there is nothing at %q in %s", from.Path, from.Source)
	}

	at, err := findSkill(dir, from.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from.Source, err)
	}

	from.Skill, from.Problems = skills.Load(at)
	if from.Skill == nil {
		return nil, fmt.Errorf("%s: %s", from.Source, firstError(dir, from.Problems))
	}

	// The skill will be installed in a folder with its own name.
	from.Problems = slices.DeleteFunc(from.Problems, func(p skills.Problem) bool { return p.Rule == skills.RuleNameDirectory })
	from.Skill.Tags = indexAbove(dir, at).Tags(at)
	from.Name, from.Tags = from.Skill.Name, from.Skill.Tags
	if m := from.Skill.Manifest; m != nil {
		from.Version = m.Version
	}
	if rel, err := filepath.Rel(dir, at); err == nil && rel != "." {
		from.Path = filepath.ToSlash(rel)
	}

	from.Files, from.Hash, err = Files(at)
	var refused *RefusedError
	if errors.As(err, &refused) {
		err = entryError(refused.Path, "%s", refused.Why)
	}
	return &from, err
}

// sourceName returns the name of the folder in which a source is staged. A skill without a name
// gets this name.
func sourceName(source string) string {
	name := path.Base(filepath.ToSlash(source))
	for _, end := range []string{".git", ".zip", ".tgz", ".gz", ".tar"} {
		name = strings.TrimSuffix(name, end)
	}

	if strings.Trim(name, ".") == "" || strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !strings.ContainsRune("-_.", r)
	}) {
		return "source"
	}
	return name
}

// firstError returns the first problem that is not a warning, with its path relative to dir.
func firstError(dir string, problems []skills.Problem) string {
	p := problems[slices.IndexFunc(problems, func(p skills.Problem) bool { return !p.Warning })]
	if rel, err := filepath.Rel(dir, p.File); err == nil {
		p.File = filepath.ToSlash(rel)
	}
	return p.String()
}

// indexAbove returns the index of the repository that contains a staged skill, or nil if there is
// none.
func indexAbove(dir, at string) *skills.Registry {
	for {
		above := filepath.Dir(at)
		if !fspath.Within(above, dir) {
			return nil
		}
		if x := skills.ReadRegistry(above); x != nil && filepath.Dir(x.File) != at {
			return x
		}
		at = above
	}
}

// findSkill returns the folder of the only skill in a staging directory. It uses the repository's
// index if there is one, and otherwise searches the folders.
func findSkill(dir, only string) (string, error) {
	base := filepath.Join(dir, filepath.FromSlash(only))
	if _, problems := skills.Load(base); !slices.ContainsFunc(problems, func(p skills.Problem) bool {
		return p.Rule == skills.RuleFileMissing
	}) {
		return base, nil // a skill, possibly a broken one
	}

	c := skills.Discover(skills.Root{Path: base, Trusted: true})
	var folders []string
	if x := skills.ReadRegistry(base); x != nil {
		folders = x.Folders()
	}
	if len(folders) == 0 {
		for _, s := range c.Skills() {
			folders = append(folders, s.Dir)
		}
	}

	switch problems := c.Problems(); {
	case len(folders) == 1:
		return folders[0], nil
	case len(folders) == 0 && len(problems) > 0:
		return "", errors.New(firstError(dir, problems))
	case len(folders) == 0:
		return "", errors.New("holds no skill, which is a folder with a SKILL.md, or with manifest.json and module.ts")
	}

	var names []string
	for _, folder := range folders {
		if rel, err := filepath.Rel(dir, folder); err == nil {
			names = append(names, filepath.ToSlash(rel))
		}
	}
	return "", fmt.Errorf("holds several skills; name the one you want with --path: %s", text.List(names, 20))
}

// writer writes entries below a root and enforces the limits.
type writer struct {
	root *os.Root
	// Entries outside of subpath are skipped, except for indexes above it.
	subpath string
	// seen maps lower-case paths to the original paths. Paths of folders end with a slash.
	seen   map[string]string
	files  int
	inPath int // number of files at or below subpath
	total  int64
}

func (w *writer) add(e entry) error {
	name, err := cleanPath(e.name)
	if err != nil {
		return err
	}
	below := w.subpath == "" || name == w.subpath || strings.HasPrefix(name, w.subpath+"/")
	if e.refused != "" && (below || name == "") {
		return entryError(e.name, "%s", e.refused)
	}
	if name == "" || !below && !w.isIndexAbove(name) {
		return nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if why := skills.RefusedName(part); why != "" {
			return entryError(e.name, "%s", why)
		}
	}

	switch kind := e.mode.Type(); {
	case kind == fs.ModeDir:
		return w.mkdirAll(name)
	case kind == fs.ModeSymlink:
		return entryError(e.name, "it is a link")
	case kind != 0:
		return entryError(e.name, "it is neither a file nor a folder")
	case e.size > maxFile:
		return entryError(e.name, "it has more than %d MiB", maxFile>>20)
	}

	// Check the number before writing, so that a hostile source cannot fill the disk.
	if w.files++; w.files > maxFiles {
		return fmt.Errorf("the source holds more than %d files; nothing was installed", maxFiles)
	}
	if below {
		w.inPath++
	}
	if err := w.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	if other, ok := w.seen[strings.ToLower(name)]; ok {
		return entryError(e.name, "%q is there already, and both would be one file on some systems", other)
	}

	w.seen[strings.ToLower(name)] = name
	return w.write(name, e)
}

// isIndexAbove reports whether an entry is an index above the requested skill. The index contains
// the skill's tags.
func (w *writer) isIndexAbove(name string) bool {
	dir := path.Dir(name)
	return path.Base(name) == "index.json" && (dir == "." || dir == "skills" || strings.HasPrefix(w.subpath, dir+"/"))
}

// mkdirAll creates a folder and its parents.
func (w *writer) mkdirAll(name string) error {
	if name == "." {
		return nil
	}

	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}

		part := name[:i]
		if other, ok := w.seen[strings.ToLower(part)]; ok && other != part+"/" {
			return entryError(name, "%q is there already, and both would be one on some systems", strings.TrimSuffix(other, "/"))
		}
		w.seen[strings.ToLower(part)] = part + "/"
	}

	return w.root.MkdirAll(filepath.FromSlash(name), 0o755)
}

func (w *writer) write(name string, e entry) (err error) {
	from, err := e.open()
	if err != nil {
		return fmt.Errorf("%q in the source cannot be read: %w", e.name, err)
	}
	defer from.Close()

	mode := fs.FileMode(0o644)
	if e.mode&0o111 != 0 {
		mode = 0o755
	}

	to, err := w.root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}

	n, err := io.Copy(to, io.LimitReader(from, maxFile+1)) // the size in an archive may be wrong
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("the archive ends there: it is not whole, or unpacks to more than %d times its size", maxRatio)
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("%q in the source cannot be unpacked: %w", e.name, err)
	}

	w.total += n
	switch {
	case n > maxFile:
		return entryError(e.name, "it has more than %d MiB", maxFile>>20)
	case w.total > maxTotal:
		return fmt.Errorf("the source holds more than %d MiB; nothing was installed", maxTotal>>20)
	}

	return nil
}
