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

// The bounds of a search below one root (AGS-05).
const (
	maxLevels      = 6
	maxDirectories = 2000
)

// walker searches one root.
type walker struct {
	catalog  *Catalog
	root     Root
	onSkill  func(dir string)  // called for each directory with a skill
	dirs     []string          // of skills, in the order of the search
	hashes   map[string]string // of those that were trusted by themselves
	realRoot string            // the root with links resolved
	index    *Registry         // of the root; nil: it has none
	visited  map[string]bool   // directories with links resolved: some are reached in two ways, or in a circle
	stopped  bool              // by a limit
}

func (w *walker) warn(file string, rule Rule, format string, args ...any) {
	w.catalog.problems = append(w.catalog.problems, warning(file, rule, format, args...))
}

func (w *walker) walk() {
	real, problems := resolveDir(w.root.Path)
	if len(problems) > 0 {
		if problems[0].Rule != RulePathMissing { // a missing root is fine: it may be created later
			w.catalog.problems = append(w.catalog.problems, problems...)
		}
		return
	}

	w.realRoot = real
	w.visit(real, 0)
}

// visit reports a directory that is a skill, and searches below it otherwise.
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

	// The root itself is no skill: it is named as a place for them.
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

// subdirectory is the path of an entry that is a directory to search, with links resolved.
func (w *walker) subdirectory(dir string, e fs.DirEntry) (string, bool) {
	name, path := e.Name(), filepath.Join(dir, e.Name())
	if strings.HasPrefix(name, ".") || name == "node_modules" { // like .git, and where installs are staged
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
		return "", false // a link to a file, or a broken one
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

// findIndex reads the index of the root for the tags of its skills. Which skills there are is what the folders
// say: one that was added and not listed yet is not lost. Where others can write, no index counts.
func (w *walker) findIndex() {
	if w.root.Trusted && w.realRoot != "" {
		w.index = readIndexIn(w.realRoot)
	}
}

// load reads and registers the skills that were found.
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

// Fingerprint is a fingerprint of a root of skills, or of one skill: it stays the same while the names,
// sizes and times of their files do. It reads none of them, and has the limits of Discover, so that
// it can be polled for changes.
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

	w.onSkill(root)                                           // the root may be a skill itself, which walk does not look at
	add(root, indexFile, filepath.Join(skillsDir, indexFile)) // their tags
	w.walk()
	return hex.EncodeToString(h.Sum(nil))
}
