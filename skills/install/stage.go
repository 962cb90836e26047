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

// stagingDir is the directory below a root in which skills are staged: on the same file system, so that
// a rename can move them, and with a dot, so that it is not searched for skills.
const stagingDir = ".staging"

// Staged is a skill that was fetched and not installed yet.
type Staged struct {
	Pinned   // its entry in the lock file, without the time
	Skill    *skills.Skill
	Problems []skills.Problem // all of them warnings
	Files    []File           // by path

	tempDir string // removed by Close
}

// Close deletes what was staged. Once installed, the skill is elsewhere and stays.
func (s *Staged) Close() error { return os.RemoveAll(s.tempDir) }

// Changes says how what the skill asks for differs from what the one that is installed below root asks for
// (OSL-34); replaces is false where there is none, and then nothing differs.
func (s *Staged) Changes(root string) (changes []skills.Change, replaces bool) {
	old, _ := skills.Load(filepath.Join(root, s.Skill.Name))
	if old == nil {
		return nil, false
	}
	return skills.Compare(old.Manifest, s.Skill.Manifest), true
}

// makeStaging makes a directory for one installation. It lies below root, where nobody but the owner writes: of the
// system's for temporary files that is not so where an agent was granted it.
func makeStaging(root string) (string, error) {
	if err := os.MkdirAll(filepath.Join(root, stagingDir), 0o755); err != nil {
		return "", fmt.Errorf("skills cannot be kept in %s: %w", root, err)
	}
	return os.MkdirTemp(filepath.Join(root, stagingDir), "")
}

// stage writes entries to a new directory below root and finds the skill in it.
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

	from.Problems = slices.DeleteFunc(from.Problems, func(p skills.Problem) bool { return p.Rule == skills.RuleNameDirectory }) // it will be installed under its own name
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

// sourceName is the name of a source, for the folder that it is staged in: a skill without a name gets
// that of its folder.
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

// firstError is the first problem that is not a warning, with its path as in the source.
func firstError(dir string, problems []skills.Problem) string {
	p := problems[slices.IndexFunc(problems, func(p skills.Problem) bool { return !p.Warning })]
	if rel, err := filepath.Rel(dir, p.File); err == nil {
		p.File = filepath.ToSlash(rel)
	}
	return p.String()
}

// indexAbove is the index of the repository that a staged skill lies in; nil if there is none.
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

// findSkill is the directory of the only skill in a staging directory: of the index of the repository where it
// has one, else of its folders (OSL-02).
func findSkill(dir, only string) (string, error) {
	base := filepath.Join(dir, filepath.FromSlash(only))
	if _, problems := skills.Load(base); !slices.ContainsFunc(problems, func(p skills.Problem) bool {
		return p.Rule == skills.RuleFileMissing
	}) {
		return base, nil // a skill, be it a broken one
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

// writer writes entries below a root, within all limits.
type writer struct {
	root    *os.Root
	subpath string            // entries that are not below it are skipped, but for the indexes above it
	seen    map[string]string // by path in lower case: the path as it came; that of a folder ends with a slash
	files   int
	inPath  int // of them, those at or below subpath
	total   int64
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

	// Counted before anything is written, so that a hostile source cannot fill the disk.
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

// isIndexAbove says whether an entry is an index of the repository that the wanted skill lies in: the tags of
// the skill stand there.
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
