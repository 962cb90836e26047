package skills

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rouse/internal/fspath"
)

// Limits of the search in one root.
const (
	maxLevels      = 6
	maxDirectories = 2000
)

// walker searches one root.
type walker struct {
	catalog  *Catalog
	root     Root
	onSkill  func(dir string)  // called for each directory that contains a skill
	dirs     []string          // directories of accepted skills, in search order
	hashes   map[string]string // hashes of individually trusted skills, by directory
	realRoot string            // resolved path of the root
	index    *Registry         // index of the root; nil if there is none
	// visited holds resolved directories. Links can lead to the same directory twice, or in a
	// cycle.
	visited map[string]bool
	stopped bool // a limit was reached
}

func (w *walker) warn(file string, rule Rule, format string, args ...any) {
	w.catalog.problems = append(w.catalog.problems, warning(file, rule, format, args...))
}

func (w *walker) walk() {
	real, problems := resolveDir(w.root.Path)
	if len(problems) > 0 {
		// A missing root is not a problem: it may be created later.
		if problems[0].Rule != RulePathMissing {
			w.catalog.problems = append(w.catalog.problems, problems...)
		}
		return
	}

	w.realRoot = real
	w.visit(real, 0)
}

// visit calls onSkill if dir contains a skill. Otherwise it visits the subdirectories.
func (w *walker) visit(dir string, level int) {
	if w.stopped || w.visited[dir] {
		return
	}

	if len(w.visited) == maxDirectories {
		w.stopped = true
		w.warn(w.root.Path, RuleLimit, "holds more than %d directories; the rest was not searched for skills. Name a directory nearer to them", maxDirectories)
		return
	}

	w.visited[dir] = true
	entries, err := os.ReadDir(dir)
	if err != nil {
		w.warn(dir, RuleUnreadable, "%v", withoutPath(err))
		return
	}

	// A root contains skills. It is never a skill itself.
	if level > 0 && (hasInstructions(dir) || hasProgram(dir)) {
		w.onSkill(dir)
		return
	}

	for _, e := range entries {
		sub, ok := w.subdirectory(dir, e)
		if !ok {
			continue
		}

		if level == maxLevels {
			w.warn(sub, RuleLimit, "lies deeper than %d levels below %s, and was not searched for skills", maxLevels, w.root.Path)
			return
		}
		w.visit(sub, level+1)
	}
}

// subdirectory returns the resolved path of an entry, and whether to search it.
func (w *walker) subdirectory(dir string, e fs.DirEntry) (string, bool) {
	name, path := e.Name(), filepath.Join(dir, e.Name())
	// Skip .git, staging directories of installations, and the like.
	if strings.HasPrefix(name, ".") || name == "node_modules" {
		return "", false
	}
	if e.IsDir() {
		return path, true
	}
	if e.Type()&fs.ModeSymlink == 0 {
		return "", false
	}

	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return "", false // link to a file, or broken link
	}

	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", false
	}

	if !fspath.Within(real, w.realRoot) {
		w.warn(path, RuleLinkOutside, "leads to %s, outside of %s, and was not followed; name that directory as a root or in the agent's skills", real, w.root.Path)
		return "", false
	}

	return real, true
}

func (w *walker) addSkill(dir string) {
	if w.root.Trusted {
		w.dirs = append(w.dirs, dir)
		return
	}

	if w.root.Writer != nil {
		if writer := w.root.Writer(); writer != "" {
			w.warn(dir, RuleUntrusted, "is not loaded, and can never be trusted there: %s, and could instruct your agents by it; keep skills of yours where nobody else can write", writer)
			return
		}
	}

	hash, ok := "", false
	var err error
	if w.root.Accept != nil {
		hash, ok, err = w.root.Accept(dir)
	}

	switch {
	case err != nil:
		w.warn(dir, RuleChanged, "is not loaded: %v", err)
	case !ok:
		w.warn(dir, RuleUntrusted, "is not loaded, because whoever can write in %s could instruct your agents, and nobody has trusted this skill; read it, and trust it as it is with: rouse skills trust %s", w.root.Path, dir)
	default:
		w.hashes[dir] = hash
		w.dirs = append(w.dirs, dir)
	}
}

// findIndex reads the index of the root, which supplies the tags of its skills. The index does not
// limit the set of skills, so a skill that is not listed yet is found too. The index of an
// untrusted root is ignored, because other users may have written it.
func (w *walker) findIndex() {
	if w.root.Trusted && w.realRoot != "" {
		w.index = readIndexIn(w.realRoot)
	}
}

// load reads and registers the accepted skills.
func (w *walker) load() {
	for _, dir := range w.dirs {
		s, problems := load(dir, hasProgram(dir))
		w.catalog.problems = append(w.catalog.problems, problems...)
		if s == nil {
			continue
		}
		s.Source, s.TrustedHash = w.root.Source, w.hashes[dir]
		s.Tags = w.index.Tags(s.Dir)
		if s.Tags == nil && w.root.Tags != nil {
			s.Tags = w.root.Tags(s.Dir)
		}
		w.catalog.register(s)
	}
}

// Fingerprint returns a fingerprint of a root of skills, or of a single skill. It changes if the
// name, size or modification time of a skill file changes. It does not read file contents and has
// the limits of Discover, so callers can poll it.
func Fingerprint(root string) string {
	h := sha256.New()
	w := walker{catalog: &Catalog{}, root: Root{Path: root}, visited: map[string]bool{}}
	add := func(dir string, names ...string) {
		fmt.Fprintf(h, "%q", dir)
		for _, name := range names {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
				fmt.Fprintf(h, " %s %d %d", name, info.Size(), info.ModTime().UnixNano())
			}
		}
		fmt.Fprintln(h)
	}
	w.onSkill = func(dir string) { add(dir, append([]string{manifestFile, moduleFile, docsFile}, fileNames...)...) }

	w.onSkill(root)                                           // walk does not check the root itself, which may be a skill
	add(root, indexFile, filepath.Join(skillsDir, indexFile)) // the indexes supply tags
	w.walk()
	return hex.EncodeToString(h.Sum(nil))
}
